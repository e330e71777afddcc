"""The paper's numbers as data, so that ours can be shown next to them.

Source: N. Hansen, H. Su, X. Wang, "Stabilizing Deep Q-Learning with ConvNets and Vision
Transformers under Data Augmentation", NeurIPS 2021 (arXiv:2107.00644). All are mean ± standard
deviation over 5 seeds. The paper's "500k frames" are 500,000 agent decisions in its code (300,000
for ViT). Its CURL, RAD, PAD and SODA results in tables 1 and 4 are quoted there from
N. Hansen, X. Wang, "Generalization in Reinforcement Learning by Soft Data Augmentation", ICRA 2021.

The DistractingCS numbers are approximate: the paper has curves only. They are read off Fig. 19 of
Song et al., "A Simple Framework for Generalization in Visual RL under Dynamic Scene Perturbations"
(SimGRL), NeurIPS 2024, which redraws the paper's curves. That figure does not say which
augmentation SVEA had there; the text around it names conv and overlay, so both are given it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

CITATION = "Hansen, Su, Wang: Stabilizing Deep Q-Learning …, NeurIPS 2021"
SEEDS = 5
DECISIONS = {"cnn": 500_000, "vit": 300_000}


@dataclass(frozen=True)
class PaperResult:
    """One cell of one table of the paper."""

    task: str
    mode: str
    method: str
    augment: str
    encoder: str
    mean: float
    std: float
    """Over seeds; nan where the paper gives none (robot success rates, DistractingCS)."""
    table: str
    unit: str = "return"
    approximate: bool = False
    """Whether it is read off a plot."""


# Columns are method/strong augmentation; `none` is the method's own weak augmentation alone.
_TABLE_1_RANDOM_COLORS = """
task              curl/none rad/none drq/none pad/none soda/conv soda/overlay svea/conv svea/overlay
walker_walk       445±99    400±61   520±91   468±47   697±66    692±68       760±145   749±61
walker_stand      662±54    644±88   770±71   797±46   930±12    893±12       942±26    933±24
cartpole_swingup  454±110   590±53   586±52   630±63   831±21    805±28       837±23    832±23
ball_in_cup_catch 231±92    541±29   365±210  563±50   892±37    949±19       961±7     959±5
finger_spin       691±12    667±154  776±134  803±72   901±51    793±128      977±5     972±6
"""

_TABLE_1_NATURAL_VIDEOS = """
task              curl/none rad/none drq/none pad/none soda/conv soda/overlay svea/conv svea/overlay
walker_walk       556±133   606±63   682±89   717±79   635±48    768±38       612±144   819±71
walker_stand      852±75    745±146  873±83   935±20   903±56    955±13       795±70    961±8
cartpole_swingup  404±67    373±72   485±105  521±76   474±143   758±62       606±85    782±27
ball_in_cup_catch 316±119   481±26   318±157  436±55   539±111   875±56       659±110   871±106
finger_spin       502±19    400±64   533±119  691±80   363±185   695±97       764±86    808±33
"""

_TABLE_4_VIDEO_HARD = """
task              curl/none rad/none drq/none pad/none soda/overlay svea/overlay
walker_walk       58±18     56±9     104±22   93±29    381±72       377±93
walker_stand      45±5      231±39   289±49   278±72   771±83       834±46
cartpole_swingup  114±15    110±16   138±9    123±24   429±64       393±45
ball_in_cup_catch 115±33    97±29    92±23    66±61    327±100      403±174
finger_spin       27±21     34±11    71±45    56±18    302±41       335±58
"""

_BENCHMARK = (
    (_TABLE_1_RANDOM_COLORS, "color_hard", "Table 1"),
    (_TABLE_1_NATURAL_VIDEOS, "video_easy", "Table 1"),
    (_TABLE_4_VIDEO_HARD, "video_hard", "Table 4"),
)

# Rows 1 to 12, walker_walk; the recipe names of rows 3 to 6 are ours.
# Rows 5 and 10 print the same test return in the paper.
_TABLE_3_ABLATIONS = """
method                augment encoder walker_walk/train walker_walk/color_hard
svea                  conv    vit     918±57            877±54
svea                  conv    cnn     833±91            760±145
svea-augmented-target conv    cnn     872±53            605±148
mix-all               conv    cnn     927±24            599±214
augmented-prediction  conv    cnn     596±55            569±139
clean-target          none    cnn     771±317           498±196
drq                   none    vit     920±36            94±18
drq                   none    cnn     892±65            520±91
drq                   conv    vit     286±225           470±67
drq                   conv    cnn     560±158           569±139
rad                   none    cnn     883±23            400±61
rad                   conv    cnn     260±201           246±184
"""

# Success rates; the test column aggregates 25 randomised environments. No deviations are given.
_TABLE_2_ROBOT = """
method augment encoder reach/train reach/test mvtgt/train mvtgt/test push/train push/test
drq    none    cnn     1.00        0.60       1.00        0.69       0.76       0.26
drq    conv    cnn     0.59        0.77       0.60        0.89       0.13       0.12
svea   conv    cnn     1.00        0.89       1.00        0.96       0.72       0.48
drq    none    vit     0.93        0.14       1.00        0.16       0.73       0.05
drq    conv    vit     0.26        0.67       0.48        0.82       0.08       0.07
svea   conv    vit     0.98        0.71       1.00        0.81       0.82       0.17
"""

# One column per intensity; mean of 5 seeds, read off a plot to about 10 points.
_DISTRACTING_CS = """
task              method 0.025 0.05 0.1 0.15 0.2 0.3 0.4 0.5
walker_walk       svea   600   570  575 470  330 210 120 100
walker_stand      svea   812   818  810 775  615 445 300 220
ball_in_cup_catch svea   285   245  240 152  148 125 77  55
cartpole_swingup  svea   215   210  250 168  215 210 225 200
finger_spin       svea   420   385  290 172  80  28  15  5
walker_walk       drq    430   435  405 305  215 150 100 90
walker_stand      drq    700   660  670 650  465 305 245 205
ball_in_cup_catch drq    145   105  125 120  107 110 88  97
cartpole_swingup  drq    173   150  165 168  155 150 153 150
finger_spin       drq    150   100  103 50   30  20  10  2
"""

_DISTRACTING_AUGMENTS = {"svea": ("conv", "overlay"), "drq": ("none",)}

_BY_METHOD = ((_TABLE_2_ROBOT, "Table 2", "success"), (_TABLE_3_ABLATIONS, "Table 3", "return"))

_SHORT = {"reach": "robot_reach", "mvtgt": "robot_reach_moving", "push": "robot_push"}


def lookup(
    task: str, mode: str, method: str, augment: str = "none", encoder: str = "cnn"
) -> PaperResult | None:
    """The paper's number for a setting, or None where it has none.

    >>> lookup("walker_walk", "color_hard", "svea", "conv").mean
    760.0
    """
    return PAPER_RESULTS.get((task, mode, method, augment, encoder))


def _rows(table: str) -> Iterator[dict[str, str]]:
    """The lines of a table as dicts keyed by its first line."""
    header, *lines = (line.split() for line in table.strip().splitlines())
    return (dict(zip(header, line, strict=True)) for line in lines)


def _mean_std(cell: str) -> tuple[float, float]:
    """'760±145' as two numbers; without '±', the deviation is nan."""
    mean, _, std = cell.partition("±")
    return float(mean), float(std or "nan")


def _cells() -> Iterator[PaperResult]:
    """Every cell of every table."""
    for table, mode, name in _BENCHMARK:
        for row in _rows(table):
            task = row.pop("task")
            for column, cell in row.items():
                method, augment = column.split("/")
                yield PaperResult(task, mode, method, augment, "cnn", *_mean_std(cell), name)
    for table, name, unit in _BY_METHOD:
        for row in _rows(table):
            who = (row.pop("method"), row.pop("augment"), row.pop("encoder"))
            for column, cell in row.items():
                task, mode = column.split("/")
                where = (_SHORT.get(task, task), mode)
                yield PaperResult(*where, *who, *_mean_std(cell), name, unit)
    for row in _rows(_DISTRACTING_CS):
        task, method = row.pop("task"), row.pop("method")
        for intensity, cell in row.items():
            for augment in _DISTRACTING_AUGMENTS[method]:
                setting = (task, f"distracting_cs:{intensity}", method, augment, "cnn")
                about = "DistractingCS curves"
                yield PaperResult(*setting, *_mean_std(cell), about, approximate=True)


PAPER_RESULTS: dict[tuple[str, str, str, str, str], PaperResult] = {}
"""Every number, by (task, mode, method, augment, encoder); of repeated ones the first table's."""
for _one in _cells():
    PAPER_RESULTS.setdefault((_one.task, _one.mode, _one.method, _one.augment, _one.encoder), _one)

TASKS = frozenset(result.task for result in PAPER_RESULTS.values())
"""Every task that the paper has a number for."""
