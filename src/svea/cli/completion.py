"""`svea completion`: a script that lets a shell complete verbs, flags, tasks, methods and modes."""

from __future__ import annotations

from typing import Literal

from svea.cli.arguments import Positional, parse

# Flags are read off `svea VERB --help` when they are asked for, so the script knows those of the
# version that is installed.
SCRIPT = """\
_svea_flags() {{
  COLUMNS=200 svea "$1" --help 2>/dev/null | grep -oE -- '--[a-z][a-zA-Z0-9._-]*' | sort -u
}}
_svea() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  local verb="${{COMP_WORDS[1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then words="{verbs} --help --version"
  else
    case "$prev" in
      --method|--methods) words="{methods}" ;;
      --modes|--eval-mode) words="{modes}" ;;
      --tasks) words="{tasks}" ;;
    esac
    if [ -z "$words" ]; then
      case "$cur" in
        -*) words="$(_svea_flags "$verb")" ;;
        *) if [ "$verb" = train ] && [ "$COMP_CWORD" -eq 2 ]; then words="{tasks}"; fi ;;
      esac
    fi
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _svea svea
"""


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "completion", arguments)


def command(shell: Positional[Literal["bash", "zsh"]]) -> int:
    """Print a completion script: eval "$(svea completion bash)".

    Args:
        shell: whose script; put the line above into ~/.bashrc or ~/.zshrc to keep it.
    """
    from svea.cli import VERBS
    from svea.config.modes import GROUP_NAMES, modes_of
    from svea.config.tasks import TASKS
    from svea.methods import METHODS

    if shell == "zsh":
        print("autoload -U +X compinit && compinit && autoload -U +X bashcompinit && bashcompinit")
    names = {"verbs": [*VERBS], "methods": [*METHODS], "tasks": [*TASKS]}
    names["modes"] = [*modes_of(None), *GROUP_NAMES]
    print(SCRIPT.format(**{kind: " ".join(words) for kind, words in names.items()}))
    return 0
