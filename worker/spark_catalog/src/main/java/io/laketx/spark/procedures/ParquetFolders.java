package io.laketx.spark.procedures;

import static org.apache.spark.sql.types.DataTypes.BooleanType;
import static org.apache.spark.sql.types.DataTypes.StringType;

import com.fasterxml.jackson.databind.JsonNode;
import io.laketx.spark.metadata.Rows;
import io.laketx.spark.service.LakeException;
import io.laketx.spark.service.PythonCall;
import io.laketx.v1.Column;
import io.laketx.v1.Table;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.functions;

/** Folders of Parquet files outside of the lake: files that become a table's, and rows that leave it. */
final class ParquetFolders {
  private static final String INSTEAD = "run `laketx import PATH TABLE`";
  private static final String TIMESTAMPS = "spark.sql.parquet.outputTimestampType";
  private static final String MARK = "mapreduce.fileoutputcommitter.marksuccessfuljobs";
  private static final String UTC_CLOCK =
      "concat(cast(timestampadd(MICROSECOND, unix_micros(%s), timestamp_ntz'1970-01-01 00:00:00') as string), 'Z')";

  private ParquetFolders() {}

  static List<LakeProcedure> all(Lake lake) {
    return List.of(
        new LakeProcedure("import_parquet", "Registers Parquet files as files of a table where they are.")
            .takes("path", StringType, "the folder, the file or the URI")
            .takes("table", StringType, "the table, such as 'shop.orders'; a missing one is created")
            .mayTake("message", StringType, "''", "what for, as the history shows it")
            .answers("table string, version bigint, rows bigint")
            .does(given -> importParquet(lake, given)),
        new LakeProcedure("export", "Writes the rows of a version, or of the newest, as plain Parquet files into a new folder.")
            .takesTable()
            .takes("path", StringType, "the folder or its URI; it must be empty or not exist")
            .mayTakeVersion()
            .mayTake("partitioned", BooleanType, "true", "whether partitions become folders like day=2026-11-01")
            .answers("table string, version bigint, path string")
            .does(given -> export(lake, given)));
  }

  private static List<InternalRow> importParquet(Lake lake, Arguments given) {
    JsonNode done =
        PythonCall.run(
            lake.service().address(),
            INSTEAD,
            List.of("import", "parquet", "--message=" + given.text("message")),
            List.of(path(given), lake.name(given)));
    return List.of(Rows.of(done.get("table").asText(), done.get("version").asLong(), done.get("rows").asLong()));
  }

  private static String path(Arguments given) {
    String path = given.text("path");
    if (path.isEmpty()) throw LakeException.invalid("PATH_INVALID", "say where the files are: path => '/arrivals'");
    return path;
  }

  // -- export

  private static List<InternalRow> export(Lake lake, Arguments given) {
    Table table = lake.table(given);
    long version = lake.version(table, given);
    ExportTarget target = ExportTarget.of(path(given), lake.service().address().warehouse());
    SparkSession spark = ((SparkSession) SparkSession.active()).cloneSession(); // its settings are its own
    spark.conf().set(TIMESTAMPS, "TIMESTAMP_MICROS");
    Dataset<Row> rows = spark.sql("SELECT * FROM " + quoted(lake, table) + " VERSION AS OF " + version);
    List<Column> partitions = !given.has("partitioned") || given.flag("partitioned") ? partitions(table) : List.of();
    checkPartitions(table, partitions, rows);
    for (Column one : partitions) {
      if (one.getType().equals("timestamp")) { // in the session's zone two of them may look alike
        rows = rows.withColumn(one.getName(), functions.expr(UTC_CLOCK.formatted(quoted(one.getName()))));
      }
    }
    String[] names = partitions.stream().map(Column::getName).toArray(String[]::new);
    Dataset<Row> found = rows;
    target.fill(
        folder -> {
          var writer = found.write().mode("append").option(MARK, "false");
          (names.length == 0 ? writer : writer.partitionBy(names)).parquet(folder);
        });
    return List.of(Rows.of(table.getName(), version, target.path()));
  }

  private static List<Column> partitions(Table table) {
    Map<String, Column> known = table.getColumnsList().stream().collect(Collectors.toMap(Column::getName, one -> one));
    return table.getPartitionColumnsList().stream().map(known::get).toList();
  }

  /** What folders can't name: an empty text reads as NULL, and bytes need not be text. */
  private static void checkPartitions(Table table, List<Column> partitions, Dataset<Row> rows) {
    String instead = ": partitioned => false keeps all columns in the files";
    if (!partitions.isEmpty() && partitions.size() == table.getColumnsCount()) {
      throw LakeException.invalid("PARTITION_INVALID", table.getName() + " has no column beside its partitions" + instead);
    }
    for (Column one : partitions) {
      if (one.getType().equals("binary")) {
        throw LakeException.invalid("PARTITION_INVALID", one.getName() + " has bytes, which can't name a folder" + instead);
      }
      if (one.getType().equals("string") && !rows.where(quoted(one.getName()) + " = ''").isEmpty()) {
        throw LakeException.invalid(
            "PARTITION_INVALID", "an empty " + one.getName() + " would be read as NULL" + instead);
      }
    }
  }

  private static String quoted(Lake lake, Table table) {
    return quoted(lake.catalog())
        + Arrays.stream(table.getName().split("\\.")).map(part -> "." + quoted(part)).collect(Collectors.joining());
  }

  private static String quoted(String name) {
    return "`" + name.replace("`", "``") + "`";
  }
}
