"""Answers in a CSV file to reports and a tally, on a Spark cluster.

Run ``spark-submit examples/spark_reports.py PLAN.json ANSWERS.csv REPORTS TALLY.json``, where Shoal
is installed and all paths are shared by the driver and the tasks. Run again after a crash, it goes
on with the reports that were published: no answer is randomized twice.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from shoal import Plan, PrivacyRefusal
from shoal.batch.spark import published_reports, randomize, tally
from shoal.planning.certificate import compute_promise


def main(plan_file: str, answers: str, reports: str, tally_file: str) -> None:
    """Randomize the answers if that was not done, and count the reports."""
    plan = Plan.read(plan_file)
    if (refusal := compute_promise(plan).refusal) is not None:
        raise PrivacyRefusal(refusal)
    spark = SparkSession.builder.appName("reports").getOrCreate()
    if published_reports(spark, plan, reports) is None:
        randomize(spark.read.csv(answers, header=True), plan, reports)
    counted = tally(spark, plan, [reports])
    counted.write(tally_file)
    print(f"{counted.reports:,} reports counted, written to {tally_file}.")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
