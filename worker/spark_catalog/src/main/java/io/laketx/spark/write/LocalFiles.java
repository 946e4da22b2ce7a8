package io.laketx.spark.write;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Files of this machine that tasks write. Without its native library Hadoop starts a process, `chmod`, for each file that it
 * makes, and another one for the checksums that it puts beside it. This sets permissions itself, and writes no such checksums:
 * Parquet's pages have their own.
 */
public final class LocalFiles extends RawLocalFileSystem {
  private static final String SETTING = "fs.file.impl";

  /** Files that are written under the configuration are written so, unless it names others. */
  static void set(Configuration conf) {
    if (conf.get(SETTING) != null) return;
    conf.set(SETTING, LocalFiles.class.getName());
    conf.setBoolean(SETTING + ".disable.cache", true); // a process has one for each scheme there, whatever its settings
  }

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
  }
}
