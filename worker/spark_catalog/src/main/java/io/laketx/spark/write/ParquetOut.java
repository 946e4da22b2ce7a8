package io.laketx.spark.write;

import io.laketx.v1.Table;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.UUID;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.parquet.HadoopReadOptions;
import org.apache.parquet.hadoop.ParquetFileReader;
import org.apache.parquet.hadoop.ParquetOutputFormat;
import org.apache.parquet.hadoop.metadata.ParquetMetadata;
import org.apache.parquet.hadoop.util.HadoopInputFile;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.parquet.ParquetOptions;
import org.apache.spark.sql.execution.datasources.parquet.ParquetUtils;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.immutable.Map$;

/**
 * All that is used of Spark beyond its public interfaces for writing: its Parquet writer, to be sent to executors. What
 * a new minor version of Spark changes is mended here.
 */
final class ParquetOut implements Serializable {
  private static final long serialVersionUID = 1;
  private static final String[][] SETTINGS = {
    {"spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"}, // INT96 has no statistics
    {"spark.sql.parquet.fieldId.write.enabled", "true"},
    {"spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED"},
    {"spark.sql.parquet.writeLegacyFormat", "false"},
  };

  private final SerializableConfiguration conf;
  private transient SQLConf settings; // of tasks

  private ParquetOut(SerializableConfiguration conf) {
    this.conf = conf;
  }

  static SparkSession session() {
    return (SparkSession) org.apache.spark.sql.SparkSession.active();
  }

  static ParquetOut of(Table meta, StructType schema) {
    SparkSession spark = session();
    SQLConf settings = with(spark.sessionState().conf().clone());
    String codec = codecOf(meta);
    ParquetOptions options =
        new ParquetOptions(Map$.MODULE$.<String, String>empty().updated("compression", codec), settings);
    try {
      Job job = Job.getInstance(spark.sessionState().newHadoopConf());
      for (String[] one : SETTINGS) job.getConfiguration().set(one[0], one[1]); // Spark keeps what is set in it
      ParquetUtils.prepareWrite(settings, job, schema, options);
      FieldIds.set(job.getConfiguration(), meta);
      BloomFilters.set(job.getConfiguration(), meta);
      LocalFiles.set(job.getConfiguration());
      return new ParquetOut(new SerializableConfiguration(job.getConfiguration()));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static SQLConf with(SQLConf settings) {
    for (String[] one : SETTINGS) settings.setConfString(one[0], one[1]);
    return settings;
  }

  private static String codecOf(Table meta) {
    String codec = meta.getPropertiesOrDefault("write.compression", "zstd");
    return switch (codec) {
      case "lz4" -> "lz4_raw";
      case "uncompressed" -> "none";
      default -> codec;
    };
  }

  /** What writes rows into a new file. It is closed with null. */
  RecordWriter<Void, InternalRow> open(String path) {
    if (settings == null) settings = with(new SQLConf());
    return SQLConf.withExistingConf(settings, () -> opened(new Path(path)));
  }

  /** Spark's own writers copy the configuration for each file. */
  private RecordWriter<Void, InternalRow> opened(Path path) {
    try {
      return new ParquetOutputFormat<InternalRow>()
          .getRecordWriter(conf.value(), path, ParquetOutputFormat.getCompression(conf.value()));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    } catch (InterruptedException stopped) {
      throw new UncheckedIOException(ParquetRowFile.interrupted(stopped));
    }
  }

  long sizeOf(String path) throws IOException {
    Path where = new Path(path);
    return where.getFileSystem(conf.value()).getFileStatus(where).getLen();
  }

  /** Does nothing where there is no such file. */
  void remove(String path) throws IOException {
    Path where = new Path(path);
    where.getFileSystem(conf.value()).delete(where, false);
  }

  ParquetMetadata footerOf(String path) throws IOException {
    Path where = new Path(path);
    HadoopInputFile file = HadoopInputFile.fromPath(where, conf.value());
    // Without options Parquet would parse Hadoop's XML files again for each file.
    try (ParquetFileReader reader =
        ParquetFileReader.open(file, HadoopReadOptions.builder(conf.value(), where).build())) {
      return reader.getFooter();
    }
  }

  // -- on the driver

  static void removeFolder(String path) throws IOException {
    Path where = new Path(path);
    where.getFileSystem(configuration()).delete(where, true);
  }

  static void writeFile(String path, byte[] bytes) throws IOException {
    Path where = new Path(path);
    try (FSDataOutputStream out = where.getFileSystem(configuration()).create(where, false)) {
      out.write(bytes);
    }
  }

  static byte[] readFile(String path) throws IOException {
    Path where = new Path(path);
    try (FSDataInputStream in = where.getFileSystem(configuration()).open(where)) {
      return in.readAllBytes();
    }
  }

  /** A file that is never seen in part. */
  static void writeWhole(String path, byte[] bytes) throws IOException {
    Path unfinished = new Path(path + "." + UUID.randomUUID());
    FileSystem files = unfinished.getFileSystem(configuration());
    try (FSDataOutputStream out = files.create(unfinished, false)) {
      out.write(bytes);
    }
    if (!files.rename(unfinished, new Path(path))) files.delete(unfinished, false);
  }

  static boolean exists(String path) throws IOException {
    Path where = new Path(path);
    return where.getFileSystem(configuration()).exists(where);
  }

  /** A setting of the session, which may have any name. */
  static String setting(String name, String otherwise) {
    return SQLConf.get().getConfString(name, otherwise);
  }

  // -- jobs

  /** Spark's jobs of this thread, from now on, are known by the tag. */
  static void tagJobs(String tag) {
    session().sparkContext().addJobTag(tag);
  }

  static void untagJobs(String tag) {
    session().sparkContext().removeJobTag(tag);
  }

  /** Any thread may stop them. */
  static Consumer<String> stopper(String tag) {
    SparkContext context = session().sparkContext();
    return why -> context.cancelJobsWithTag(tag, why);
  }

  private static Configuration configuration() {
    return session().sessionState().newHadoopConf();
  }
}
