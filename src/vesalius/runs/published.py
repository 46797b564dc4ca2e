"""The figures of the paper that published the circuits benchmark, for the tables beside our own.

None of them was measured here: they are for the paper's agent on the original models, with the paper's judges. Table 9
is a rating by one person of 17 components. Figures 3 and 4 were published as pictures without numbers, so their rows
are empty.
"""

NOT_MEASURED = "published, not measured here"
SOURCE = f"HyVE paper (arXiv 2606.24026); {NOT_MEASURED}"
GPT, CLAUDE, GEMINI, QWEN = "GPT-5.4", "Claude-Sonnet-4.6", "Gemini-3.1-Pro", "Qwen-3-Coder-30B-A3B"

Row = dict[str, float | None]

TABLE_2: dict[str, Row] = {
    GPT: {"tag_accuracy": 0.74, "description_quality": 0.46, "task_accuracy": 0.63, "execution_success": 0.52},
    CLAUDE: {"tag_accuracy": 0.79, "description_quality": 0.58, "task_accuracy": 0.75, "execution_success": 0.93},
    GEMINI: {"tag_accuracy": 0.76, "description_quality": 0.59, "task_accuracy": 0.83, "execution_success": 0.80},
    QWEN: {"tag_accuracy": 0.67, "description_quality": 0.25, "task_accuracy": 0.25, "execution_success": 0.62},
}
#: Role descriptions of the ten AF1 components of Llama-3-8B, rated by three people (`study af1`).
TABLE_4: dict[str, dict[str, int]] = {
    GPT: {"correct": 6, "partial": 3, "wrong": 1},
    CLAUDE: {"correct": 8, "partial": 2, "wrong": 0},
    GEMINI: {"correct": 1, "partial": 2, "wrong": 7},
}
TABLE_9: dict[str, Row] = {
    GPT: {"grounding": 1.94, "fully": 0.941, "partial": 0.059},
    CLAUDE: {"grounding": 1.94, "fully": 0.941, "partial": 0.059},
    GEMINI: {"grounding": 1.94, "fully": 0.941, "partial": 0.059},
    QWEN: {"grounding": 1.41, "fully": 0.412, "partial": 0.588},
}
TABLE_10: dict[str, Row] = {
    GPT: {"plan_soundness": 1.85},
    CLAUDE: {"plan_soundness": 1.0},
    GEMINI: {"plan_soundness": 1.13},
    QWEN: {"plan_soundness": 0.76},
}
TABLE_11: dict[str, Row] = {
    CLAUDE: {"input_tokens": 34_490_000, "output_tokens": 2_940_000, "cost": 147.55, "cost_per_case": 1.76},
    GPT: {"input_tokens": 16_730_000, "output_tokens": 2_380_000, "cost": 77.47, "cost_per_case": 0.92},
    GEMINI: {"input_tokens": 12_770_000, "output_tokens": 690_000, "cost": 33.81, "cost_per_case": 0.40},
    QWEN: {"input_tokens": 18_640_000, "output_tokens": 1_310_000, "cost": 0.0, "cost_per_case": None},
}
#: Agreement of two people, and of the lower human with the lower judge: Table 6 on texts of two backbones, Table 7
#: on those of all four; Table 8 holds each person against each judge there. Weighted kappa on 0/1/2, plain on 0/1.
HUMANS, LOWEST = "two people", "lower human, lower judge"
TABLE_6: dict[str, Row] = {
    HUMANS: {"description_quality": 0.802, "plan_soundness": 0.460, "task_accuracy": 0.963},
    LOWEST: {"description_quality": 0.753, "plan_soundness": 0.481, "task_accuracy": 0.864},
}
TABLE_7: dict[str, Row] = {
    HUMANS: {"description_quality": 0.83, "plan_soundness": 0.37, "task_accuracy": 0.96},
    LOWEST: {"description_quality": 0.76, "plan_soundness": 0.44, "task_accuracy": 0.80},
}
TABLE_8: dict[str, Row] = {
    "H1, GPT": {"description_quality": 0.73, "plan_soundness": 0.23, "task_accuracy": 0.73},
    "H1, Gemini": {"description_quality": 0.78, "plan_soundness": 0.59, "task_accuracy": 0.74},
    "H2, GPT": {"description_quality": 0.63, "plan_soundness": 0.43, "task_accuracy": 0.73},
    "H2, Gemini": {"description_quality": 0.74, "plan_soundness": 0.49, "task_accuracy": 0.74},
}
