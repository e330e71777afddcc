"""Networks, losses, optimisers and sampling by kernels of our own, or compiled by torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn

from svea.agents.auxiliary import PAD
from svea.agents.sac import SAC
from svea.networks import Actor
from svea.networks.frame_cnn import FrameCNN
from svea.networks.vit import Attention, ViT
from svea.replay import Replay

if TYPE_CHECKING:
    from svea.agents.agent import Agent
    from svea.kernels.heads import FusedHead


def compile_networks(agent: Agent, precision: torch.dtype) -> None:
    """Replace every network's forward pass, and so its backward pass: by kernels, else compiled."""
    alone, low = looks_alone(agent), precision == torch.bfloat16
    for network in agent.networks.values():
        if network is agent.auxiliary:
            for part in further_trunks(network) if agent.device.type == "cuda" else ():
                if not fuse_convolutions(part):
                    put_channels_last(part)
            continue
        if agent.device.type == "cuda":
            if fuse_convolutions(network):
                continue
            if low and (fuse_head(network) or (alone and fuse_vit(network))):
                continue
            fuse_attention(network)
            if network is agent.masker:
                put_channels_last(network)
        # Several batch sizes for each network of each run side by side. At the default limits (8,
        # and 256 in all) torch stops compiling and computes slowly.
        torch._dynamo.config.recompile_limit = 512
        torch._dynamo.config.accumulated_recompile_limit = 4096
        network.compile(dynamic=False)
    if agent.device.type == "cuda":
        fuse_steps(agent)
        fuse_losses(agent)
        leave_views_apart(agent)


def further_trunks(network: nn.Module) -> Iterator[nn.Module]:
    """Networks in an auxiliary task that may be trunks: SODA's slow one, the part PAD shares."""
    yield from network.children()
    if isinstance(network, PAD) and network.own_layers:
        yield network.shared


def fuse_head(network: nn.Module) -> bool:
    """Let our own kernels compute a policy or Q-functions, where they fit."""
    from svea.kernels import nvrtc
    from svea.kernels.heads import FusedHead

    if not FusedHead.fits(network):
        return False
    try:
        head = FusedHead(network)  # type: ignore[arg-type]
    except nvrtc.BuildError as error:
        slow = f"policy and Q-functions are compiled by torch and take longer: {error}"
        warnings.warn(slow, stacklevel=2)
        return False
    network.forward = head  # type: ignore[method-assign]
    if isinstance(network, Actor):
        network.sample = head.sample  # type: ignore[method-assign]
    return True


def fused_heads(agent: Agent) -> list[FusedHead]:
    """The policy and Q-functions that our own kernels compute."""
    from svea.kernels.heads import FusedHead

    networks = agent.networks.values()
    return [network.forward for network in networks if isinstance(network.forward, FusedHead)]


def fuse_steps(agent: Agent) -> None:
    """Let our own kernels take the optimisers' steps, where they fit."""
    from svea.kernels import nvrtc
    from svea.kernels.steps import FusedSteps

    if not FusedSteps.fits(agent):
        return
    try:
        fast = FusedSteps(agent, heads=fused_heads(agent))
    except nvrtc.BuildError as error:
        warnings.warn(f"optimisers take longer: {error}", stacklevel=2)
        return
    agent.step, agent.update_target = fast.step, fast.update_target  # type: ignore[method-assign]


def fuse_losses(agent: Agent) -> None:
    """Let our own kernels compute losses and their slopes, on GPUs that this was tried on."""
    from svea.kernels import nvrtc
    from svea.kernels.updates import MOST_VIEWS, FusedLosses

    few = len(agent.streams.prediction) <= MOST_VIEWS
    if not few or torch.cuda.get_device_capability(agent.device) < (9, 0):
        return
    try:
        fast = FusedLosses(agent)
    except nvrtc.BuildError as error:
        warnings.warn(f"losses take longer: {error}", stacklevel=2)
        return
    agent.weighted_error = fast.weighted_error  # type: ignore[method-assign]
    if isinstance(agent, SAC):
        agent.policy_losses = fast.policy_losses  # type: ignore[method-assign]


def fuse_sampling(replay: Replay) -> None:
    """Let a kernel of our own draw batches from a replay on a GPU, where it fits."""
    from svea.kernels import nvrtc
    from svea.kernels.updates import FusedSampling

    if not FusedSampling.fits(replay):
        return
    try:
        replay.sample = FusedSampling(replay)  # type: ignore[method-assign]
    except nvrtc.BuildError as error:
        warnings.warn(f"sampling takes longer: {error}", stacklevel=2)


def leave_views_apart(agent: Agent) -> None:
    """Hand views to the trunk as they lie, if nothing but our own kernels looks at them."""
    from svea.kernels.trunk import FusedTrunk
    from svea.kernels.vit import FusedViT

    trunks = (agent.trunk, agent.target_trunk)
    if looks_alone(agent) and all(isinstance(t.forward, FusedTrunk | FusedViT) for t in trunks):
        agent.view_maker.join = tuple


def looks_alone(agent: Agent) -> bool:
    """Whether nothing but the trunk looks at views, and nothing asks for their gradient."""
    return agent.auxiliary is None and agent.masker is None


def fuse_vit(network: nn.Module) -> bool:
    """Let our own kernels compute a ViT's forward and backward pass, where they fit."""
    if not isinstance(network, ViT):
        return False
    from svea.kernels.vit import FusedViT

    if not FusedViT.fits(network):
        return False
    fast = FusedViT(network)
    try:
        fast.check()
    except Exception as error:  # whatever a compiler or a driver may raise
        slow = f"the ViT is compiled by torch and takes longer: {error}"
        warnings.warn(slow, stacklevel=2)
        return False
    network.forward = fast  # type: ignore[method-assign, assignment]
    return True


def fuse_convolutions(network: nn.Module) -> bool:
    """Let our own kernels compute an encoder's forward and backward pass, where they fit."""
    if isinstance(network, FrameCNN):
        return fuse_frames(network)
    from svea.kernels import nvrtc
    from svea.kernels.convolutions import FusedConvolutions
    from svea.kernels.trunk import FusedTrunk, fused_trunk

    if not FusedConvolutions.fits(network):
        return False
    lay_out(network)
    if FusedTrunk.fits(network):
        try:
            network.forward = fused_trunk(network)  # type: ignore[arg-type, assignment]
            return True
        except nvrtc.BuildError as error:
            slow = f"convolutions run a layer at a time and take longer: {error}"
            warnings.warn(slow, stacklevel=2)
    elif lacks := FusedTrunk.obstacle(network):
        slow = f"convolutions run a layer at a time and take longer: this GPU has {lacks}"
        warnings.warn(slow, stacklevel=2)
    network.forward = FusedConvolutions(network)  # type: ignore[arg-type, assignment]
    return True


def fuse_frames(network: FrameCNN) -> bool:
    """The same for the frame-wise encoder, which torch compiles where our kernels do not fit."""
    from svea.kernels import nvrtc
    from svea.kernels.trunk import FusedFrames, fused_trunk

    lacks = "our kernels are made for 16 filters on each of up to 3 frames, then 32 for all"
    if FusedFrames.fits(network):
        lay_out(network)
        try:
            network.forward = fused_trunk(network)  # type: ignore[method-assign]
            return True
        except nvrtc.BuildError as error:
            lacks = str(error)
    elif obstacle := FusedFrames.obstacle(network):
        lacks = f"this GPU has {obstacle}"
    slow = f"encoder frames is compiled by torch and takes longer: {lacks}"
    warnings.warn(slow, stacklevel=2)
    return False


def lay_out(network: nn.Module) -> None:
    """Give weights the layout in which our kernels read them and write their gradients."""
    for weight in network.parameters():
        weight.data = weight.data.contiguous()


def put_channels_last(network: nn.Module) -> None:
    """Let the library's convolutions have pixels whose channels lie together.

    That is what tensor cores take: else it turns every picture around, forward and backward.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def fuse_attention(network: nn.Module) -> None:
    """Let our own kernels mix the tokens of a ViT."""
    from svea.kernels.attention import attention

    for module in network.modules():
        if isinstance(module, Attention):
            module.mix = attention
