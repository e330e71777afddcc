"""Sizes that follow from a configuration: feature maps, patches, and the replay's memory."""

from __future__ import annotations

from svea.core.errors import UserError

FRAMES = 3
"""Pictures in an observation, unless another number is asked for."""

WINDOW = FRAMES + 1  # frames that a stored transition points to


def output_size(image_size: int, layers: int, strided_layers: int) -> int:
    """Height and width that are left of an image after the convolutions.

    >>> output_size(84, layers=11, strided_layers=1)
    21
    """
    size = image_size
    for layer in range(layers):
        size = (size - 3) // (2 if layer < strided_layers else 1) + 1
        if size < 1:
            raise UserError(
                f"images of {image_size} pixels are too small for {layers} layers "
                f"({strided_layers} of them strided): nothing is left after layer {layer + 1}. "
                "Use larger images (--image-size) or fewer layers (--network.layers)"
            )
    return size


def check_patches(image_size: int, patch: int, width: int, heads: int) -> None:
    """Refuse images that do not split into patches, and widths that do not split into heads."""
    if image_size % patch:
        raise UserError(
            f"images of {image_size} pixels do not split into patches of {patch}: use a multiple, "
            f"e.g. --image-size {max(1, round(image_size / patch)) * patch}"
        )
    if width % heads:
        raise UserError(
            f"{width} dimensions do not split into {heads} heads: use a multiple of {heads} for "
            "--network.width"
        )


def frame_slots(capacity: int, environments: int, episode_length: int) -> int:
    """Frames to keep for ``capacity`` decisions: one each, one per episode, and the open stacks.

    A stack spans three turns, and in each an environment may write two frames: the last of an
    episode and the first of the next.
    """
    return capacity + -(-capacity // max(1, episode_length)) + 2 * WINDOW * environments


def replay_bytes(
    capacity: int, image_size: int, actions: int, environments: int = 1, episode_length: int = 125
) -> int:
    """Memory that a Replay of this size allocates, in bytes."""
    frame = 3 * image_size * image_size
    transition = WINDOW * 8 + actions * 4 + 3 * 4 + 8
    return frame_slots(capacity, environments, episode_length) * frame + capacity * transition
