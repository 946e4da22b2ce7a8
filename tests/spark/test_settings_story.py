"""The story of all verbs in sessions that are set otherwise, against the same in a plain one."""

from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from laketx import connect
from tests.spark.settings_story import Story

# What is a user's own affair is not here: STRICT store assignment refuses casts, quotedRegexColumnNames takes names for
# patterns. Each is below spark.sql, as a statement SET would have it.
PARQUET: Final = """
    parquet.outputTimestampType=INT96 parquet.binaryAsString=true parquet.int96AsTimestamp=false
    parquet.datetimeRebaseModeInRead=LEGACY parquet.int96RebaseModeInRead=LEGACY parquet.int96TimestampConversion=true
    parquet.datetimeRebaseModeInWrite=LEGACY parquet.int96RebaseModeInWrite=LEGACY parquet.writeLegacyFormat=true
    parquet.inferTimestampNTZ.enabled=false parquet.fieldId.read.enabled=false parquet.fieldId.write.enabled=false
    parquet.fieldId.read.ignoreMissing=true parquet.mergeSchema=true parquet.compression.codec=gzip
    legacy.parquet.nanosAsLong=true legacy.parquet.returnNullStructIfAllFieldsMissing=true
"""
FILES: Final = """
    files.ignoreMissingFiles=true files.ignoreCorruptFiles=true files.ignoredPathSegmentRegex=part|^[._]
    files.ignoreInvalidPartitionPaths=true sources.partitionColumnTypeInference.enabled=false
    sources.partitionOverwriteMode=DYNAMIC sources.default=csv sources.fileCompressionFactor=3.0
    sources.parallelPartitionDiscovery.threshold=0 files.archive.reader.enabled=true
"""
TYPES: Final = """
    timestampType=TIMESTAMP_NTZ ansi.enabled=false session.timeZone=Europe/Berlin ansi.enforceReservedKeywords=true
    ansi.doubleQuotedIdentifiers=true ansi.relationPrecedence=true parser.escapedStringLiterals=true
    decimalOperations.allowPrecisionLoss=false mapKeyDedupPolicy=LAST_WIN function.concatBinaryAsString=true
"""
READER: Final = """
    parquet.enableVectorizedReader=false parquet.enableNestedColumnVectorizedReader=false
    parquet.recordLevelFilter.enabled=true parquet.columnarReaderBatchSize=2 columnVector.offheap.enabled=true
    codegen.wholeStage=false codegen.factoryMode=NO_CODEGEN optimizer.nestedSchemaPruning.enabled=false
    parquet.aggregatePushdown=true
"""
LEGACY: Final = """
    legacy.timeParserPolicy=LEGACY legacy.charVarcharAsString=true legacy.sizeOfNull=false
    legacy.allowNegativeScaleOfDecimal=true legacy.doLooseUpcast=true legacy.setopsPrecedence.enabled=true
    legacy.exponentLiteralAsDecimal.enabled=true legacy.literal.pickMinimumPrecision=false
    legacy.castComplexTypesToString.enabled=true legacy.allowHashOnMapType=true legacy.codingErrorAction=true
    legacy.javaCharsets=true legacy.typeCoercion.datetimeToString.enabled=true legacy.disableMapKeyNormalization=true
    legacy.followThreeValuedLogicInArrayExists=false legacy.decimal.retainFractionDigitsOnTruncate=true
    legacy.createEmptyCollectionUsingStringType=true legacy.consecutiveStringLiterals.enabled=true
    legacy.inlineCTEInCommands=true legacy.parseNullPartitionSpecAsStringLiteral=true
"""
PLANS: Final = """
    adaptive.enabled=false shuffle.partitions=1 autoBroadcastJoinThreshold=-1 crossJoin.enabled=false cbo.enabled=true
    cbo.planStats.enabled=true planChangeValidation=true maxPlanStringLength=10 debug.maxToStringFields=2
    constraintPropagation.enabled=false exchange.reuse=false optimizer.disableHints=true
    subexpressionElimination.enabled=false optimizer.datasourceV2JoinPushdown=true
    sources.v2.bucketing.partiallyClusteredDistribution.enabled=true sources.v2.bucketing.shuffle.enabled=true
    sources.v2.bucketing.allowKeysSubsetOfPartitionKeys.enabled=true sources.v2.bucketing.sorting.enabled=true
"""


def play(spark: SparkSession, folder: Path, settings: str) -> dict[str, object]:
    session = spark.newSession()
    for one in settings.split():
        key, _, value = one.partition("=")
        session.conf.set(f"spark.sql.{key}", value)
    with connect(folder, session) as lake:
        return Story(lake).tell()


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    seen = play(spark, tmp_path_factory.mktemp("plain"), "")
    failed = {step: found for step, found in seen.items() if isinstance(found, str) and "Error: " in found}
    assert not failed
    return seen


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(PARQUET + FILES + TYPES, id="many"),
        pytest.param(READER, id="reader"),
        pytest.param(LEGACY, id="legacy"),
        pytest.param(PLANS, id="plans"),
    ],
)
def test_a_story_is_the_same_however_the_session_is_set(
    spark: SparkSession, plain: dict[str, object], tmp_path: Path, settings: str
) -> None:
    seen = play(spark, tmp_path, settings)
    assert {step: found for step, found in seen.items() if found != plain[step]} == {}
