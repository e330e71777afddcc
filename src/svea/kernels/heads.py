"""Policy and Q-functions on a GPU: the library's matrix products, and our kernels (heads.cu).

A Q-function's forward pass is seven launches and its backward pass twelve, where torch.compile made
some thirty of each; and nothing has to be compiled but a source of 250 lines, in a second.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from svea.networks import Actor, Critic
from svea.networks.heads import LOG_STD_MAX, LOG_STD_MIN, MLP, Noise, normal

SOURCES = [Path(__file__).with_name(name) for name in ("tensor_cores.cu", "heads.cu")]
THREADS, PACKERS = 256, 132  # of a block; blocks that pack a matrix
Launch = Callable[..., None]


class Parameters(ctypes.Structure):
    """Where the weights lie, as heads.cu has it."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("projection", "projection_bias", "scale", "shift")),
        *(
            (name, ctypes.c_void_p * 2)
            for name in ("first", "first_bias", "second", "second_bias", "output", "output_bias")
        ),
    ]


class Packed(NamedTuple):
    """Weights in bfloat16, their rows filled up with zeros (heads.cu)."""

    projection: Tensor
    first: Tensor
    second: Tensor


class FusedHead:
    """The forward pass of a policy or of Q-functions: set as its ``forward``."""

    def __init__(self, network: Actor | Critic, launch: Launch | None = None) -> None:
        """Compile the kernels for a network.

        Args:
            network: one that `fits`.
            launch: runs kernels, in place of the GPU that the network lies on.
        """
        self.network = network
        linear, norm, mlps = parts_of(network)
        layers: list[Any] = [linear, norm]
        for mlp in mlps:
            layers += [mlp.hidden[0], mlp.hidden[2], mlp.output]
        self.parameters: list[Tensor] = []
        for layer in layers:
            self.parameters += [layer.weight, layer.bias]
        self.heads, self.projection, self.features = len(mlps), *linear.weight.shape
        self.outputs, self.hidden = mlps[0].output.weight.shape
        inputs = layers[2].in_features
        self.actions = inputs - self.projection
        self.wide, self.row = filled_up(self.projection), filled_up(inputs)
        if launch is None:
            from svea.kernels import nvrtc

            launch = nvrtc.Kernels(SOURCES, self.macros(), linear.weight.device)
        self.launch = launch
        self._copies: Packed | None = None
        self._copied: list[tuple[int, int]] = []

    @staticmethod
    def fits(network: nn.Module) -> bool:
        """Whether the kernels are made for this network and tried on such a GPU."""
        ours = isinstance(network, Actor | Critic) and type(network) in (Actor, Critic)
        if not (ours and has_right_shape(network)):  # type: ignore[arg-type]
            return False
        device = next(network.parameters()).device
        return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)

    def macros(self) -> dict[str, int]:
        """What the source is compiled for."""
        names = ("features", "projection", "actions", "hidden", "outputs", "heads")
        return {name.upper(): getattr(self, name) for name in names}

    def addresses(self) -> Parameters:
        """Where the weights lie."""
        at = [parameter.data_ptr() for parameter in self.parameters]
        table = Parameters(*at[:4])
        for head in range(self.heads):
            own = at[4 + 6 * head : 10 + 6 * head]
            for field, address in zip(Parameters._fields_[4:], own, strict=True):
                getattr(table, field[0])[head] = address
        return table

    def __call__(self, features: Tensor, *actions: Tensor) -> Any:
        """What the network's own forward pass returns."""
        if not torch.is_autocast_enabled(features.device.type):
            forward: Any = type(self.network).forward
            return forward(self.network, features, *actions)
        found = self.evaluate(features, *actions)
        if isinstance(self.network, Critic):
            return found.squeeze(-1)  # (2, B)
        mean, log_std = found[0].chunk(2, dim=-1)
        return mean, LOG_STD_MIN + 0.5 * (LOG_STD_MAX - LOG_STD_MIN) * (torch.tanh(log_std) + 1)

    def sample(self, features: Tensor, generator: Noise) -> tuple[Tensor, Tensor]:
        """What the policy's own `sample` returns."""
        assert isinstance(self.network, Actor)
        if not torch.is_autocast_enabled(features.device.type):
            return Actor.sample(self.network, features, generator)
        given = self.evaluate(features)[0]
        noise = normal(given[:, : self.outputs // 2], generator)
        return _Squash.apply(self, given.contiguous(), noise)  # type: ignore[no-untyped-call]

    def evaluate(self, features: Tensor, *actions: Tensor) -> Tensor:
        """The outputs, (heads, B, outputs)."""
        features = features.to(torch.bfloat16).contiguous()
        given = actions[0].float().contiguous() if actions else None
        if not torch.is_grad_enabled():
            return self.forward(features, given, {})
        kept: dict[str, Tensor] = {}
        # A node of its own: the policy's step asks for the gradient of actions alone.
        weights = _Weights.apply(self, kept, *self.parameters)  # type: ignore[no-untyped-call]
        return _Head.apply(self, kept, features, given, weights)  # type: ignore[no-untyped-call]

    # Weights -----------------------------------------------------------------------------------

    def keep_copies(self) -> list[tuple[Tensor, Tensor]]:
        """Pack weights now, and not for every pass; each matrix and its rows in bfloat16.

        What changes weights where the host does not see it, as a captured update does, has to
        change these copies as well (steps.py).
        """
        self._copies = self.room_for_weights()
        projection, first, second = self._copies
        self.pack_copies()
        found = [(self.parameters[0], projection[: self.projection])]
        for head, own in enumerate(first.split(self.hidden)):
            found.append((self.parameters[4 + 6 * head], own[:, : self.projection + self.actions]))
            found.append((self.parameters[6 + 6 * head], second[head]))
        return found

    def packed(self) -> Packed:
        """The weights in bfloat16: packed now, or copies that are kept up to date."""
        if self._copies is None:
            return self.pack(self.room_for_weights())
        self.refresh()
        return self._copies

    def refresh(self) -> None:
        """Pack copies again if weights were changed by torch, as when a state is loaded."""
        if self._copied != self.versions():
            self.pack_copies()

    def pack_copies(self) -> None:
        """Pack copies again, if they are kept."""
        if self._copies is not None:
            self.pack(self._copies)
            self._copied = self.versions()

    def check_copies(self) -> None:
        """Compare copies with the weights; if they differ, pack weights for every pass instead."""
        if self._copies is None:
            return
        fresh = self.pack(self.room_for_weights())
        pairs = zip(self._copies, fresh, strict=True)
        if not all(torch.equal(a.view(torch.int16), b.view(torch.int16)) for a, b in pairs):
            self._copies = None
            off = "weights in bfloat16 are not what optimisers should have written"
            warnings.warn(
                f"{off}: they are packed for every pass, which takes longer", stacklevel=2
            )

    def versions(self) -> list[tuple[int, int]]:
        """Where the weights lie, and how often torch has changed them."""
        return [(weight.data_ptr(), weight._version) for weight in self.parameters]

    def room_for_weights(self) -> Packed:
        """Room for all of them."""
        device, heads, hidden = self.parameters[0].device, self.heads, self.hidden
        shapes = (self.wide, self.features), (heads * hidden, self.row), (heads, hidden, hidden)
        return Packed(*(torch.empty(s, dtype=torch.bfloat16, device=device) for s in shapes))

    def pack(self, to: Packed) -> Packed:
        """Write the weights in bfloat16."""
        grid = PACKERS, 1 + 2 * self.heads
        self.launch("pack_heads", grid, THREADS, 0, self.addresses(), *to)
        return to

    # Passes ------------------------------------------------------------------------------------

    def forward(self, features: Tensor, actions: Tensor | None, kept: dict[str, Tensor]) -> Tensor:
        """The outputs; what a backward pass needs is kept."""
        rows, device, heads, hidden = len(features), features.device, self.heads, self.hidden
        addresses = self.addresses()

        def room(*shape: int, kind: torch.dtype = torch.bfloat16) -> Tensor:
            return torch.empty(shape, dtype=kind, device=device)

        projection, first, second = self.packed()
        projected = product(features, projection.t())
        x = room(rows, self.row)
        self.launch(
            "state", (blocks(rows * 32), 1), THREADS, 0,
            addresses, projected, 0 if actions is None else actions, x, rows,
        )  # fmt: skip
        one = room(heads, rows, hidden)
        elements = blocks(heads * rows * hidden // 4)
        self.launch(
            "hidden", (elements, 1), THREADS, 0, addresses, product(x, first.t()), one, rows
        )
        two, out = room(heads, rows, hidden), room(heads, rows, self.outputs, kind=torch.float32)
        self.launch(
            "outputs", (blocks(heads * rows * 32), 1), THREADS, 0,
            addresses, product(one, second.transpose(1, 2)), two, out, rows,
        )  # fmt: skip
        kept |= {
            "features": features, "projected": projected, "x": x, "one": one, "two": two,
            "projection": projection, "first": first, "second": second,
        }  # fmt: skip
        return out

    def backward(
        self, gradient: Tensor, kept: dict[str, Tensor], of_features: bool
    ) -> tuple[Tensor | None, Tensor]:
        """The gradients of features and actions; what the weights' need is kept."""
        gradient = gradient.float().contiguous()
        one, two, addresses = kept["one"], kept["two"], self.addresses()
        rows, heads, hidden = one.shape[1], self.heads, self.hidden
        elements, device = blocks(heads * rows * hidden // 4), one.device
        back_two, back_one = torch.empty_like(two), one.new_empty(rows, heads * hidden)
        self.launch(
            "outputs_back", (elements, 1), THREADS, 0, addresses, gradient, two, back_two, rows
        )
        through = product(back_two, kept["second"])
        self.launch("hidden_back", (elements, 1), THREADS, 0, through, one, back_one, rows)
        back = one.new_empty(rows, self.wide)
        terms = torch.empty((rows, 3 * self.projection), device=device)
        actions = torch.empty((rows, self.actions), device=device)
        self.launch(
            "state_back", (blocks(rows * 32), 1), THREADS, 0,
            addresses, product(back_one, kept["first"]), kept["projected"], back, terms, actions,
            rows,
        )  # fmt: skip
        kept |= {
            "gradient": gradient, "back_two": back_two, "back_one": back_one, "back": back,
            "terms": terms,
        }  # fmt: skip
        return back @ kept["projection"] if of_features else None, actions

    def weight_gradients(self, kept: dict[str, Tensor]) -> list[Tensor]:
        """The gradients of all parameters, in their order."""
        heads, hidden, outputs, wide = self.heads, self.hidden, self.outputs, self.projection
        rows, back_two, back_one = len(kept["x"]), kept["back_two"], kept["back_one"]
        sizes = [
            heads * outputs * hidden,
            heads * hidden,
            heads * hidden,
            3 * wide,
            heads * outputs,
        ]
        flat = torch.empty(sum(sizes), device=back_one.device)
        self.launch(
            "sums", (-(-len(flat) // 32), 1), THREADS, 4 * THREADS,
            kept["gradient"], kept["two"], back_two, back_one, kept["terms"], flat, rows,
        )  # fmt: skip
        output, second_bias, first_bias, state, output_bias = flat.split(sizes)
        first = product(back_one.t(), kept["x"])[:, : wide + self.actions]
        second = product(back_two.transpose(1, 2), kept["one"])
        found = [product(kept["back"].t(), kept["features"])[:wide], *state.split(wide)]
        for head in range(heads):
            mine = slice(head * hidden, (head + 1) * hidden)
            found += [first[mine].contiguous(), first_bias[mine], second[head], second_bias[mine]]
            found.append(output.view(heads, outputs, hidden)[head])
            found.append(output_bias[head * outputs : (head + 1) * outputs])
        return found


class _Weights(torch.autograd.Function):
    """The weights on their way into a head; the gradient that comes back is not looked at."""

    @staticmethod
    def forward(ctx: Any, head: FusedHead, kept: dict[str, Tensor], *weights: Tensor) -> Tensor:
        ctx.head, ctx.kept = head, kept
        return weights[0].new_empty(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> Any:  # type: ignore[override]
        return None, None, *ctx.head.weight_gradients(ctx.kept)


class _Head(torch.autograd.Function):
    """A whole head."""

    @staticmethod
    def forward(
        ctx: Any,
        head: FusedHead,
        kept: dict[str, Tensor],
        features: Tensor,
        actions: Tensor | None,
        weights: Tensor,
    ) -> Tensor:
        ctx.head, ctx.kept = head, kept
        return head.forward(features, actions, kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        _, _, of_features, of_actions, of_weights = ctx.needs_input_grad
        features, actions = ctx.head.backward(gradient, ctx.kept, of_features)
        token = gradient.new_empty(()) if of_weights else None
        return None, None, features, actions if of_actions else None, token


class _Squash(torch.autograd.Function):
    """Draws actions from a policy's outputs, and says how likely they were."""

    @staticmethod
    def forward(ctx: Any, head: FusedHead, given: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        ctx.head = head
        ctx.save_for_backward(given, noise)
        actions, probability = torch.empty_like(noise), noise.new_empty(len(noise))
        where = (blocks(len(noise), 32), 1)
        head.launch("squash", where, 32, 0, given, noise, actions, probability, len(noise))
        return actions, probability

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, actions: Tensor, probability: Tensor) -> Any:  # type: ignore[override]
        given, noise = ctx.saved_tensors
        back, rows = torch.empty_like(given), len(given)
        ctx.head.launch(
            "squash_back", (blocks(rows, 32), 1), 32, 0,
            given, noise, actions.contiguous(), probability.contiguous(), back, rows,
        )  # fmt: skip
        return None, back, None


def product(a: Tensor, b: Tensor) -> Tensor:
    """A matrix product of bfloat16 numbers, in float32; of many at once if there are many."""
    if a.device.type == "cuda":
        multiply = torch.mm if a.ndim == 2 else torch.bmm
        return multiply(a, b, out_dtype=torch.float32)
    with torch.autocast(a.device.type, enabled=False):
        return a.float() @ b.float()


def parts_of(network: Actor | Critic) -> tuple[nn.Linear, nn.LayerNorm, list[MLP]]:
    """A head's projection and its normalisation, and its networks."""
    linear, norm, _ = network.projection
    assert isinstance(linear, nn.Linear) and isinstance(norm, nn.LayerNorm)
    mlps = [network.q1, network.q2] if isinstance(network, Critic) else [network.mlp]
    return linear, norm, mlps


def has_right_shape(network: Actor | Critic) -> bool:
    """Sizes that the kernels can be compiled for, in float32 as weights are kept."""
    linear, norm, mlps = parts_of(network)
    if network.vector:  # which lies behind the features, and no kernel knows
        return False
    right = linear.in_features % 8 == 0 and linear.out_features <= 256 and norm.eps == 1e-5
    plain = all(p.dtype == torch.float32 and p.is_contiguous() for p in network.parameters())
    return right and plain and mlps[0].output.in_features % 128 == 0


def blocks(count: int, threads: int = THREADS) -> int:
    """Blocks that have so many threads."""
    return -(-count // threads)


def filled_up(columns: int) -> int:
    """The next multiple of 8."""
    return -(-columns // 8) * 8
