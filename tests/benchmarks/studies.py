"""A study's batch against one sample at a time: ``python tests/benchmarks/studies.py``.

Processor seconds a sample of the whole mechanism, and of tables with both kinds of inference, for
samples of the published design side by side and alone, paired in one process. Not a test.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

import argparse  # noqa: E402
import time  # noqa: E402
from dataclasses import replace  # noqa: E402

from surveysynth.evaluation.studies.batches import run_task  # noqa: E402
from surveysynth.evaluation.studies.coverage import CoverageStudy, Task, paper_study  # noqa: E402


def spent(study: CoverageStudy, group: str) -> float:
    """Processor seconds a sample of one group's tasks."""
    begun = time.process_time()
    for task in study.tasks():
        if task.group == group:
            run_task(study, Task(task.batch, group))
    return (time.process_time() - begun) / study.replicates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=25)
    parser.add_argument("--debiased", action="store_true", help="some minutes more")
    arguments = parser.parse_args()
    plain = paper_study(seed=7, replicates=2, methods=("fbs_paper", "fbp_paper"), batch=2)
    for group in ("fbs", "fbp"):
        spent(plain, group)  # imports and caches
    suffixes = ("_paper", "") if arguments.debiased else ("_paper",)
    for model in ("fbs", "fbp"):
        for suffix in suffixes:
            method = f"{model}{suffix}"
            together = paper_study(seed=7, replicates=arguments.samples, methods=(method,),
                                   batch=arguments.samples)  # fmt: skip
            alone = replace(together, batch=1)
            batch, single = spent(together, model), spent(alone, model)
            print(
                f"{method:<10} {arguments.samples} samples: {batch:6.2f} s cpu each in a batch, "
                f"{single:6.2f} s alone, ratio {single / batch:4.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
