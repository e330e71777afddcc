// What an update does besides its networks: a batch out of the replay, and losses with their slopes, each in one launch
// where the library takes ten to twenty.

struct Ring {
    const uint4* frames;
    const long long* windows;  // four frames of a transition
    const float *actions, *rewards, *terminated, *last, *draws;
    const long long *oldest, *size;
    float discount;
    int steps, environments, capacity;
};

// What follows a transition for up to `steps` decisions, by `Replay._returns`' law.
struct Return {
    float rewards, discount;
    long long end;  // the row that leads to the successor
};

__device__ inline Return return_from(const Ring& ring, long long age, long long size) {
    long long row = (*ring.oldest + age) % ring.capacity;
    Return found = {ring.rewards[row], ring.discount, row};
    for (int step = 1; step < ring.steps; step++) {
        long long later = age + (long long)step * ring.environments;
        if (ring.last[found.end] != 0.0f || later >= size) break;
        found.end = (*ring.oldest + later) % ring.capacity;
        found.rewards += found.discount * ring.rewards[found.end];
        found.discount *= ring.discount;
    }
    found.discount *= 1.0f - ring.terminated[found.end];
    return found;
}

// Transitions drawn uniformly, by `Replay.sample`'s law. A block copies one frame of a stack: three of the
// observation, three of its successor.
extern "C" __global__ void sample(Ring ring, uint4* observations, uint4* successors, float* actions, float* rewards,
                                  float* discounts, int words, int action_size) {
    int sample = blockIdx.x / 6, place = blockIdx.x % 6;
    long long size = *ring.size, age = (long long)(ring.draws[sample] * (float)size);
    if (age > size - 1) age = size - 1;  // rounding may lift the largest draws to `size` itself
    long long row = (*ring.oldest + age) % ring.capacity;
    Return later = return_from(ring, age, size);
    long long slot = place < 3 ? ring.windows[row * 4 + place] : ring.windows[later.end * 4 + place - 2];
    const uint4* from = ring.frames + slot * words;
    uint4* to = (place < 3 ? observations : successors) + (u64)(sample * 3 + place % 3) * words;
    for (int i = threadIdx.x; i < words; i += blockDim.x) to[i] = from[i];
    if (place) return;
    for (int i = threadIdx.x; i < action_size; i += blockDim.x)
        actions[sample * action_size + i] = ring.actions[row * action_size + i];
    if (threadIdx.x == 0) {
        rewards[sample] = later.rewards;
        discounts[sample] = later.discount;
    }
}

// A block's sum, in a fixed order; every thread gets it. `number`: of the sum, each has memory of its own.
__device__ inline float sum_of_block(float value, int number) {
    u32 memory = shared_start() + number * 32 * 4;
    for (int bits = 1; bits < 32; bits *= 2) value += exchange(value, bits);
    if (threadIdx.x % 32 == 0) put_float(memory + threadIdx.x / 32 * 4, value);
    synchronise();
    float sum = 0.0f;
    for (int warp = 0; warp < (int)blockDim.x / 32; warp++) sum += get_float(memory + warp * 4);
    return sum;
}

struct Streams {
    float weight[16];
};

// Eq. 4: squared errors of (heads, views, batch), weighted by view, and their slopes. One block.
extern "C" __global__ void weighted_error(const float* q, const float* target, Streams streams, float* loss,
                                          float* slopes, int heads, int views, int batch, int targets) {
    float sum = 0.0f;
    for (int i = threadIdx.x; i < heads * views * batch; i += blockDim.x) {
        int view = i / batch % views, sample = i % batch;
        float error = q[i] - target[(targets > 1 ? view * batch : 0) + sample], weight = streams.weight[view] / batch;
        sum += weight * error * error;
        slopes[i] = 2.0f * weight * error;
    }
    sum = sum_of_block(sum, 0);
    if (threadIdx.x == 0) *loss = sum;
}

struct Goal {
    float entropy;
};

// SAC's losses of policy and temperature. `scalars`: policy's loss, temperature's loss, temperature, entropy.
extern "C" __global__ void policy_losses(const float* q, const float* probability, const float* log_temperature,
                                         Goal goal, float* scalars, float* of_q, float* of_probability, int heads,
                                         int batch) {
    float temperature = expf(*log_temperature), values = 0.0f, likely = 0.0f;
    for (int i = threadIdx.x; i < batch; i += blockDim.x) {
        float least = q[i];
        int equal = 0;
        for (int head = 1; head < heads; head++) least = fminf(least, q[head * batch + i]);
        for (int head = 0; head < heads; head++) equal += q[head * batch + i] == least;
        for (int head = 0; head < heads; head++)
            of_q[head * batch + i] = q[head * batch + i] == least ? -1.0f / batch / equal : 0.0f;
        of_probability[i] = temperature / batch;
        values += least, likely += probability[i];
    }
    values = sum_of_block(values, 0) / batch, likely = sum_of_block(likely, 1) / batch;
    if (threadIdx.x) return;
    scalars[0] = temperature * likely - values;
    scalars[1] = temperature * (-likely - goal.entropy);
    scalars[2] = temperature, scalars[3] = -likely;
}
