package io.laketx.spark.read;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.util.List;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkJobInfo;
import org.apache.spark.SparkStageInfo;
import org.apache.spark.SparkStatusTracker;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.rdd.InputFileBlockHolder;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.CatalystTypeConverters;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.VariantExtraction;
import org.apache.spark.sql.errors.QueryCompilationErrors$;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.parquet.ParquetScan;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * All that is used of Spark beyond its public interfaces: its vectorised Parquet reader, and a few conversions. What a
 * new minor version of Spark changes is mended here.
 */
public final class SparkInternals {
  /** A column of this name Spark fills with each row's position in its file. */
  static final String ROW_INDEX = "_tmp_metadata_row_index";

  private static final String LOOKS_AGAIN = "org.apache.spark.sql.execution.datasources.v2.V2TableRefreshUtil";
  private static final int LOOK_DEPTH = 32;

  private static final String FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled";
  private static final String VECTORED_IO = "parquet.hadoop.vectored.io.enabled";
  private static final String[][] SETTINGS = {
    {"spark.sql.parquet.enableVectorizedReader", "true"},
    {"spark.sql.parquet.enableNestedColumnVectorizedReader", "true"},
    {"spark.sql.parquet.int96TimestampConversion", "false"},
  };

  /** Files have days of one calendar, whoever wrote them. */
  private static final java.util.Map<String, String> OPTIONS =
      java.util.Map.of("datetimeRebaseMode", "CORRECTED", "int96RebaseMode", "CORRECTED");

  private SparkInternals() {}

  static SparkSession session() {
    return (SparkSession) org.apache.spark.sql.SparkSession.active();
  }

  /** A catalog of the session. */
  public static TableCatalog catalog(String name) {
    return (TableCatalog) session().sessionState().catalogManager().catalog(name);
  }

  /** A table's rows, whether or not a catalog has it. */
  public static Dataset<Row> rows(SparkSession session, Table table, CaseInsensitiveStringMap options) {
    return Dataset$.MODULE$.ofRows(
        session, DataSourceV2Relation.create(table, Option.empty(), Option.empty(), options, Option.empty()));
  }

  /** The current namespace of a catalog, as one name; null where the catalog isn't the current one, or it has none. */
  public static String currentNamespace(String catalog) {
    CatalogManager catalogs = session().sessionState().catalogManager();
    String[] found = catalogs.currentNamespace();
    boolean isCurrent = catalogs.currentCatalog().name().equals(catalog) && found.length > 0;
    return isCurrent ? String.join(".", found) : null;
  }

  /** Stands for the statement that this thread analyses; null where it analyses none. */
  public static Object statement() {
    Option<QueryPlanningTracker> found = QueryPlanningTracker$.MODULE$.get();
    return found.isEmpty() ? null : found.get();
  }

  /** Whether a batch of a streaming query is planned by this thread. */
  public static boolean isInStream() {
    return session().sparkContext().getLocalProperty(StreamExecution.QUERY_ID_KEY()) != null;
  }

  /** Whether Spark looks once more at the tables of a statement that it has analysed, for it is about to run. */
  public static boolean isLookingAgain() {
    return StackWalker.getInstance()
        .walk(frames -> frames.limit(LOOK_DEPTH).anyMatch(one -> one.getClassName().startsWith(LOOKS_AGAIN)));
  }

  /** Fails as Spark does when it looks once more, and columns of a table have changed. */
  @SuppressWarnings("unchecked")
  static <E extends Throwable> void refuseChanged(String table, List<String> columns) throws E {
    List<String> said = columns.stream().map(one -> "column " + one + " has changed").toList();
    Seq<String> errors = CollectionConverters.asScala(said).toSeq();
    throw (E) QueryCompilationErrors$.MODULE$.columnsChangedAfterAnalysis(table, errors);
  }

  /** Whether Spark's optimiser reckons with the columns' bounds. */
  static boolean asksForBounds() {
    return SQLConf.get().cboEnabled();
  }

  /** Files of one schema, read in batches whatever the session prefers for its own tables; to be sent to executors. */
  static final class ParquetFiles implements Serializable {
    private static final long serialVersionUID = 1;

    private final ParquetPartitionReaderFactory factory;

    /** Whether all rows of a file are read, whatever they are. */
    boolean isWhole() {
      return factory.filters().length == 0;
    }

    private ParquetFiles(ParquetPartitionReaderFactory factory) {
      this.factory = factory;
    }

    /** The filters leave out row groups and pages; not every row that they rule out. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static ParquetFiles of(StructType schema, Filter[] filters, boolean isLocal) {
      SparkSession spark = session();
      Map<String, String> options = Map$.MODULE$.<String, String>empty().updated(FIELD_IDS, "true");
      // on local disks a thread for each range costs more than it saves
      if (isLocal) options = options.updated(VECTORED_IO, "false");
      Configuration conf = spark.sessionState().newHadoopConfWithOptions(options);
      ParquetScan scan =
          new ParquetScan(
              spark,
              conf,
              null,
              schema,
              schema,
              new StructType(),
              filters,
              new CaseInsensitiveStringMap(OPTIONS),
              Option.empty(),
              (Seq) Nil$.MODULE$,
              (Seq) Nil$.MODULE$,
              new VariantExtraction[0]);
      ParquetPartitionReaderFactory made = (ParquetPartitionReaderFactory) scan.createReaderFactory();
      SQLConf settings = made.sqlConf().clone();
      for (String[] one : SETTINGS) settings.setConfString(one[0], one[1]);
      return new ParquetFiles(
          made.copy(
              settings,
              made.broadcastedConf(),
              made.dataSchema(),
              made.readDataSchema(),
              made.partitionSchema(),
              made.filters(),
              made.aggregation(),
              made.options()));
    }

    /** The content of a small file beside the data, read by a task; null if it can't be read. */
    byte[] readBeside(String path) {
      try (InputStream in = storageOf(path).open(new Path(path))) {
        return in.readAllBytes();
      } catch (IOException missing) {
        return null;
      }
    }

    FileSystem storageOf(String path) throws IOException {
      return new Path(path).getFileSystem(factory.broadcastedConf().value().value());
    }

    PartitionReader<ColumnarBatch> open(FileTask task) {
      long start = task.start();
      long length = task.length();
      SparkPath spelled = SparkPath.fromPath(new Path(task.path()));
      InputFileBlockHolder.set(spelled.urlEncoded(), start, length);
      if (task.isInlined()) return InlinedRows.open(task.content(), factory.readDataSchema());
      return factory.buildColumnarReader(
          new PartitionedFile(
              InternalRow.empty(), spelled, start, length, new String[0], 0L, length, Map$.MODULE$.empty()));
    }
  }

  static void closed() {
    InputFileBlockHolder.unset();
  }

  /** Columns in SQL that was written by us or kept in the lake: no setting of the session changes what it means. */
  public static StructType columns(String ddl) {
    return SQLConf.withExistingConf(new SQLConf(), () -> StructType.fromDDL(ddl));
  }

  /** A type in SQL that is kept in the lake; as for columns. */
  public static DataType type(String ddl) {
    return SQLConf.withExistingConf(new SQLConf(), () -> DataType.fromDDL(ddl));
  }

  /** A value of a filter as Spark keeps it in rows. */
  static Object toCatalyst(Object value, DataType type) {
    return CatalystTypeConverters.createToCatalystConverter(type).apply(value);
  }

  /** Waits until no task of the jobs with a tag runs; those of a job that failed go on until they notice. */
  public static void awaitTasks(SparkContext context, String tag, long withinMs) {
    long end = System.currentTimeMillis() + withinMs;
    try {
      context.listenerBus().waitUntilEmpty(withinMs); // the tracker knows what was told by then
      while (hasTasks(context.statusTracker(), tag) && System.currentTimeMillis() < end) Thread.sleep(20);
    } catch (InterruptedException stop) {
      Thread.currentThread().interrupt();
    } catch (TimeoutException late) {
      return; // nobody waits for ever
    }
  }

  private static boolean hasTasks(SparkStatusTracker tracker, String tag) {
    for (int job : tracker.getJobIdsForTag(tag)) {
      Option<SparkJobInfo> known = tracker.getJobInfo(job);
      if (known.isEmpty()) continue;
      for (int stage : known.get().stageIds()) {
        Option<SparkStageInfo> found = tracker.getStageInfo(stage);
        if (found.isDefined() && found.get().numActiveTasks() > 0) return true;
      }
    }
    return false;
  }

  /** The storage that has a path, for the driver. */
  public static FileSystem storageOf(String path) throws IOException {
    return new Path(path).getFileSystem(session().sessionState().newHadoopConf());
  }

  /** The content of a small file beside the data. */
  public static byte[] readFile(String path) throws IOException {
    try (InputStream in = storageOf(path).open(new Path(path))) {
      return in.readAllBytes();
    }
  }

  /** Whether the file is there. */
  public static boolean isFile(String path) throws IOException {
    return storageOf(path).exists(new Path(path));
  }

  /** A small file that is there as a whole or not at all. */
  public static void writeFile(String path, byte[] bytes) throws IOException {
    Path where = new Path(path);
    Path aside = new Path(path + ".new");
    FileSystem files = storageOf(path);
    try (OutputStream out = files.create(aside, true)) {
      out.write(bytes);
    }
    if (!files.rename(aside, where)) throw new IOException("can't be renamed to " + path);
  }

  /** How many bytes a task should read, of so many in all. */
  static long splitBytes(long allBytes, long files) {
    SparkSession spark = session();
    SQLConf conf = SQLConf.get();
    long tasks = spark.sparkContext().defaultParallelism();
    if (conf.filesMinPartitionNum().isDefined()) tasks = ((Number) conf.filesMinPartitionNum().get()).longValue();
    long each = (allBytes + files * conf.filesOpenCostInBytes()) / Math.max(tasks, 1);
    return Math.min(conf.filesMaxPartitionBytes(), Math.max(conf.filesOpenCostInBytes(), each));
  }

  static long openCostBytes() {
    return SQLConf.get().filesOpenCostInBytes();
  }
}
