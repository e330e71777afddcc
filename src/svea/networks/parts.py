"""Networks beyond the paper's: of SimGRL, PAD, MaDi, SGQN, DDPG and DQN; a user's own encoder.

And what observations with several parts need.
"""

import copy
import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn

from svea.config.options import FRAMES, output_size
from svea.core.errors import UserError
from svea.core.importing import import_named, users_code
from svea.networks.encoders import CNN, Trunk, initialise
from svea.networks.heads import MLP, Branch

COLOURS = 3  # channels of a frame


class FrameCNN(Trunk):
    """A CNN whose first layers look at each frame of a stack by itself, with the same weights.

    So what early layers find cannot depend on motion, and later layers must tell the motion of the
    robot from that of the background by what moves (SimGRL). ``FrameCNN()`` is SimGRL's: three
    layers of 16 filters for each frame, 84 -> 41 -> 39 -> 37 pixels, then their 48 maps together
    through eight layers of 32: 83,680 parameters, 14,112 features.
    """

    drqv2 = False  # no ReLU after the last layer, as in CNN

    def __init__(
        self,
        channels: int = 9,
        image_size: int = 84,
        layers: int = 11,
        filters: int = 32,
        strided_layers: int = 1,
        frame_layers: int = 3,
    ) -> None:
        """Build the trunk; sizes are as in `CNN`, and layers are counted over both parts.

        The first ``frame_layers`` see one frame at a time, with half of the ``filters``.
        """
        super().__init__()
        output_size(image_size, layers, strided_layers)  # else the message would name a part's size
        strided = min(strided_layers, frame_layers)
        self.single = CNN(3, image_size, frame_layers, max(1, filters // 2), strided)
        self.between = nn.ReLU()  # a module, as every ReLU: guided gradients replace these
        filters_in, side, _ = self.single.maps
        self.joint = CNN(
            channels // 3 * filters_in, side, layers - frame_layers, filters,
            strided_layers - strided,
        )  # fmt: skip
        self.input_shape = (channels, image_size, image_size)
        self.maps, self.features = self.joint.maps, self.joint.features

    # A seam: `kernels` may assign a faster one over it.
    def forward(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features)."""
        frames = images.unflatten(1, (-1, 3)).flatten(0, 1)  # of each sample, oldest first
        maps = self.between(self.single(frames))
        return self.joint(maps.reshape(-1, *self.joint.input_shape))


class HeadCNN(Trunk):
    """The last convolutions of an encoder whose first ones are shared.

    Trunk and head together are the same network as an unsplit trunk: a ReLU stands before each
    convolution, or after each in DrQ-v2's form, where the trunk ends in one.
    """

    def __init__(self, maps: tuple[int, int, int], layers: int, drqv2: bool = False) -> None:
        """Continue from a trunk's ``maps`` (filters, height, width) for some layers."""
        super().__init__()
        filters, side, _ = maps
        pairs = [(nn.ReLU(), nn.Conv2d(filters, filters, 3)) for _ in range(layers)]
        self.layers = nn.Sequential(
            *(step for pair in pairs for step in (reversed(pair) if drqv2 else pair))
        )
        self.maps = self.input_shape = maps
        self.features = filters * output_size(side, layers, 0) ** 2
        self.apply(initialise)

    def forward(self, features: Tensor) -> Tensor:
        """The trunk's flat features -> the head's, (B, features)."""
        return self.layers(features.unflatten(1, self.maps)).flatten(1)


def own_head(trunk: Trunk, layers: int) -> nn.Module:
    """The last convolutions of a trunk again, with weights of their own."""
    if layers == 0:
        return nn.Identity()
    shared = without_last(trunk, layers)
    return HeadCNN(shared.maps, layers, shared.drqv2)


def without_last(trunk: Trunk, layers: int) -> CNN | FrameCNN:
    """A trunk that ends this many convolutions earlier; its weights are the given trunk's own."""
    if isinstance(trunk, TwoPictures):
        raise UserError(
            f"network.head_layers is {layers}, but PAD's task has no convolutions of its own for "
            "two pictures; allowed: 0"
        )
    assert isinstance(trunk, CNN | FrameCNN), "only convolutions can be shared in part"
    part = copy.copy(trunk)
    part._modules = dict(trunk._modules)  # which copying alone would share
    filters, side, _ = trunk.maps
    side += 2 * layers  # each of them takes a pixel from every edge
    part.maps, part.features = (filters, side, side), filters * side**2
    if isinstance(trunk, FrameCNN):
        part.joint = without_last(trunk.joint, layers)
    else:
        part.layers = nn.Sequential(*list(trunk.layers)[: -2 * layers])
    return part


class OwnEncoder(Trunk):
    """What a class or function of a user's makes, tried once to know the size of its output.

    It is called with `image_size` and `channels` where it has parameters of these names, and must
    return a module that maps (B, channels, H, W) in [0, 1] to (B, features).

    Example:
        >>> OwnEncoder("torch.nn:Flatten", image_size=16).features
        2304
    """

    def __init__(self, name: str, image_size: int) -> None:
        """Import `module:class` or `module:function`, call it, and try what it makes."""
        super().__init__()
        channels = COLOURS * FRAMES
        self.input_shape = (channels, image_size, image_size)
        factory = import_named("encoder", name)
        known = {"image_size": image_size, "channels": channels}
        with users_code(f"encoder {name!r} cannot be made:"):
            accepted = inspect.signature(factory).parameters
            self.network = factory(**{key: n for key, n in known.items() if key in accepted})
        if not isinstance(self.network, nn.Module):
            made = type(self.network).__name__
            raise UserError(f"encoder {name!r} made {made}, not a torch.nn.Module")
        observed = (
            f"{self.input_shape}, {FRAMES} RGB frames; its parameters `channels` and `image_size`, "
            "if it has them, are given both numbers"
        )
        taken = tuple(getattr(self.network, "input_shape", self.input_shape))
        if taken != self.input_shape:
            raise UserError(f"encoder {name!r} takes {taken}; allowed: {observed}")
        wrong = f"encoder {name!r} cannot encode observations; allowed: any that takes {observed}."
        with torch.no_grad(), users_code(f"{wrong} It raised"):
            features = copy.deepcopy(self.network).eval()(torch.zeros(2, *self.input_shape))
        if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
            made = getattr(features, "shape", type(features).__name__)
            raise UserError(
                f"encoder {name!r} makes {made} of two observations; allowed: (2, features), as "
                "with .flatten(1)"
            )
        self.features = features.shape[1]

    def forward(self, images: Tensor) -> Tensor:
        """(B, 9, H, W) in [0, 1] -> (B, features)."""
        return self.network(images)


class TwoPictures(Trunk):
    """The encoder of observations with two pictures: one for each of them, or one for both.

    Example:
        >>> trunk = TwoPictures(lambda: CNN(image_size=16, layers=4))
        >>> trunk(torch.rand(2, 18, 16, 16)).shape == (2, trunk.features)
        True
    """

    def __init__(self, make: Callable[[], Trunk], shared: bool = False) -> None:
        """Make one encoder for each picture, or one for both."""
        super().__init__()
        self.first, self.second = make(), None if shared else make()
        channels, height, width = self.first.input_shape
        self.input_shape = (2 * channels, height, width)
        self.features = 2 * self.first.features

    def forward(self, images: Tensor) -> Tensor:
        """(B, 18, H, W) in [0, 1], the first picture's frames first -> (B, features)."""
        pictures = images.unflatten(1, (2, -1))
        if self.second is None:
            return self.first(pictures.flatten(0, 1)).unflatten(0, (-1, 2)).flatten(1)
        return torch.cat([self.first(pictures[:, 0]), self.second(pictures[:, 1])], dim=1)


MOST_DEVIATIONS = 10.0
"""How far from the mean a scaled number may be: one that training never showed is not to drown
the others."""


class Scale(nn.Module):
    """Vectors with mean 0 and deviation 1, by what all batches so far had.

    Example:
        >>> scale, vectors = Scale(2), torch.tensor([[1.0, 500.0], [3.0, 700.0]])
        >>> scale.observe(vectors)
        >>> scale(vectors).round()
        tensor([[-1., -1.],
                [ 1.,  1.]])
    """

    batches: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, numbers: int) -> None:
        """Begin without a batch: vectors then stay as they are."""
        super().__init__()
        self.register_buffer("batches", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(numbers))
        self.register_buffer("variance", torch.ones(numbers))

    @torch.no_grad()
    def observe(self, vectors: Tensor) -> None:
        """Take a batch into the means; on its device, so that an update can be captured whole."""
        self.batches += 1
        variance, mean = torch.var_mean(vectors, dim=0, correction=0)
        share, offset = 1 / self.batches, mean - self.mean
        # Batches of one size: the variance of all is that within them and that of their means.
        self.variance.lerp_(variance, share).add_(offset.square() * share * (1 - share))
        self.mean.lerp_(mean, share)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, numbers) -> the same, scaled."""
        scaled = (vectors - self.mean) * (self.variance + 1e-6).rsqrt()
        return scaled.clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)


class Masker(nn.Module):
    """Multiplies every pixel of every frame by a number in (0, 1) that it computes from the frame.

    ``Masker()`` is the one of MaDi (Grooten et al., 2024): three 3x3 convolutions at full
    resolution, 10,433 parameters. Frames of a stack are masked one by one, by the same weights.
    84 pixels cost 219 million multiplications per observation, 2.4 times the paper's CNN.
    """

    def __init__(self, filters: int = 32) -> None:
        """Build the network; its first two convolutions have this many filters."""
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(COLOURS, filters, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(filters, filters, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(filters, 1, 3, padding=1),
        )
        self.apply(initialise)

    def masks(self, images: Tensor) -> Tensor:
        """Stacked frames (B, 3k, H, W) in [0, 1] -> what is kept of their pixels, (B, k, H, W)."""
        frames = images.unflatten(1, (-1, COLOURS))  # (B, k, 3, H, W)
        kept = torch.sigmoid(self.layers(frames.flatten(0, 1)))  # (B*k, 1, H, W)
        return kept.unflatten(0, frames.shape[:2]).squeeze(2)

    def forward(self, images: Tensor) -> Tensor:
        """Stacked frames (B, 3k, H, W) in [0, 1] -> the same, masked."""
        return (images.unflatten(1, (-1, COLOURS)) * self.masks(images)[:, :, None]).flatten(1, 2)


MAPS = 32


class AttributionDecoder(nn.Module):
    """SGQN's: from projected features and an action to a logit for each value of an observation.

    A quarter of the size first, doubled twice; PyTorch's own initialisation, as in the reference.
    With 100 features, 6 actions and 84 pixels it has 1,625,961 parameters.
    """

    def __init__(self, inputs: int, channels: int = 9, image_size: int = 84) -> None:
        """Build the network; ``inputs`` counts features and actions together."""
        super().__init__()
        self.side = -(-image_size // 4)
        self.linear = nn.Linear(inputs, MAPS * self.side**2)
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.Conv2d(MAPS, 128, 3, padding=1),
            nn.Upsample(scale_factor=2),
            nn.ReLU(),
            nn.Conv2d(128, 64, 3, padding=1),
            nn.Upsample(size=(image_size, image_size)),  # twice, if its quarter is whole
            nn.ReLU(),
            nn.Conv2d(64, channels, 3, padding=1),
        )

    def forward(self, features: Tensor) -> Tensor:
        """(B, inputs) -> logits (B, channels, H, W)."""
        return self.layers(self.linear(features).unflatten(1, (MAPS, self.side, self.side)))


class DeterministicActor(Branch):
    """The policy of DDPG: one action per state, with its own projection."""

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """One network for the actions."""
        self.mlp = MLP(projection, hidden, actions)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, F) -> actions (B, A) in (-1, 1)."""
        return torch.tanh(self.mlp(self.state(features)))


class DiscreteCritic(Branch):
    """One Q-value for each of several actions."""

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """One network for all actions."""
        self.advantage = MLP(projection, hidden, actions)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, F) -> Q of every action, (B, actions)."""
        return self.advantage(self.state(features))


class DuelingCritic(DiscreteCritic):
    """The same Q-values as a state value plus each action's advantage over the mean of all.

    Example:
        >>> import torch
        >>> critic, features = DuelingCritic(128, actions=5), torch.rand(2, 128)
        >>> state = critic.projection(features)
        >>> torch.allclose(critic(features).mean(-1), critic.value(state)[:, 0], atol=1e-6)
        True
    """

    def build(self, actions: int, projection: int, hidden: int) -> None:
        """Adds the state-value network."""
        super().build(actions, projection, hidden)
        self.value = MLP(projection, hidden, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Features (B, F) -> Q of every action, (B, actions)."""
        state = self.state(features)
        advantage = self.advantage(state)
        return self.value(state) + advantage - advantage.mean(-1, keepdim=True)
