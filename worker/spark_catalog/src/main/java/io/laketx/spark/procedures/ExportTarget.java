package io.laketx.spark.procedures;

import io.laketx.spark.read.SparkInternals;
import io.laketx.spark.service.Ids;
import io.laketx.spark.service.LakeException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;

/** A folder outside of the lake, for rows that leave it. It has no file when the rows begin to come. */
record ExportTarget(FileSystem files, Path folder) {
  private static final long TASKS_END_WITHIN_MS = 60_000;

  static ExportTarget of(String path, String warehouse) {
    Configuration settings = ((SparkSession) SparkSession.active()).sessionState().newHadoopConf();
    try {
      Path given = new Path(path);
      FileSystem files = given.getFileSystem(settings);
      Path folder = files.makeQualified(given);
      Path lake = new Path(warehouse);
      lake = lake.getFileSystem(settings).makeQualified(lake);
      if (isWithin(folder, lake) || isWithin(lake, folder)) {
        throw LakeException.invalid("PATH_INVALID", path + " overlaps with the lake's own files in " + warehouse);
      }
      if (hasFiles(files, folder)) {
        throw LakeException.invalid("PATH_NOT_EMPTY", path + " has files: remove them, or name another folder");
      }
      return new ExportTarget(files, folder);
    } catch (IllegalArgumentException | IOException error) {
      if (error instanceof LakeException refused) throw refused;
      throw LakeException.invalid("PATH_INVALID", path + ": " + error.getMessage());
    }
  }

  private static boolean isWithin(Path one, Path other) {
    return (one + "/").startsWith(other + "/");
  }

  private static boolean hasFiles(FileSystem files, Path folder) throws IOException {
    try {
      RemoteIterator<LocatedFileStatus> found = files.listFiles(folder, true);
      return found.hasNext();
    } catch (FileNotFoundException absent) {
      return false;
    }
  }

  String path() {
    return folder.toString();
  }

  /** An export that fails leaves nothing. Spark's exceptions are checked ones, which Scala doesn't declare. */
  void fill(Consumer<String> write) {
    String jobs = "laketx-export-" + Ids.uuid7();
    SparkContext context = ((SparkSession) SparkSession.active()).sparkContext();
    context.addJobTag(jobs);
    try {
      write.accept(path());
    } catch (Throwable failure) {
      try {
        SparkInternals.awaitTasks(context, jobs, TASKS_END_WITHIN_MS); // each would make its folder again
        files.delete(folder, true);
      } catch (IOException left) {
        failure.addSuppressed(new UncheckedIOException(left));
      }
      throw failure;
    } finally {
      context.removeJobTag(jobs);
    }
  }
}
