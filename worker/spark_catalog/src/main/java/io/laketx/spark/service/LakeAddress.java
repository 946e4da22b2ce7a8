package io.laketx.spark.service;

import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Where a lake is, as the settings of its catalog say.
 *
 * <pre>
 * spark.sql.catalog.lake            io.laketx.spark.LakeCatalog
 * spark.sql.catalog.lake.uri        laketx://meta:7070, or a folder with a service of its own
 * spark.sql.catalog.lake.warehouse  where the data files lie; a folder is its own
 * spark.sql.catalog.lake.user       who the history says it was
 * spark.sql.catalog.lake.python     a Python that has laketx, which starts a folder's service and imports files
 * </pre>
 */
public record LakeAddress(String uri, String warehouse, String user, String python) {
  private static final String SCHEME = "laketx://";
  private static final Pattern HOST_AND_PORT = Pattern.compile("([A-Za-z0-9.-]+|\\[[0-9A-Fa-f:]+\\]):([0-9]{1,5})");

  public static LakeAddress of(String catalog, CaseInsensitiveStringMap options) {
    String prefix = "spark.sql.catalog." + catalog;
    String uri = options.getOrDefault("uri", "");
    if (uri.isEmpty()) {
      throw LakeException.invalid(
          "ADDRESS_MISSING", "set " + prefix + ".uri to laketx://host:port, or to a folder with a service of its own");
    }
    String warehouse = options.getOrDefault("warehouse", "");
    if (!uri.startsWith(SCHEME)) {
      if (uri.contains("://") || HOST_AND_PORT.matcher(uri).matches()) {
        String said = uri + " is neither a folder nor laketx://host:port";
        throw LakeException.invalid("ADDRESS_INVALID", said + ": correct " + prefix + ".uri");
      }
      uri = absolute(uri);
      if (warehouse.isEmpty()) warehouse = uri;
    } else if (warehouse.isEmpty()) {
      throw LakeException.invalid("WAREHOUSE_MISSING", "set " + prefix + ".warehouse to where the data files lie");
    }
    String user = options.getOrDefault("user", "");
    return new LakeAddress(uri, absolute(warehouse), user, options.getOrDefault("python", ""));
  }

  boolean isFolder() {
    return !uri.startsWith(SCHEME);
  }

  /** The service, without a scheme. */
  String server() {
    return uri.substring(SCHEME.length()).replaceAll("/+$", "");
  }

  /** Host and port of a service. */
  Matcher hostAndPort() {
    Matcher found = HOST_AND_PORT.matcher(server());
    if (!found.matches()) throw LakeException.invalid("ADDRESS_INVALID", uri + " is not laketx://host:port");
    return found;
  }

  private static String absolute(String path) {
    String plain = path.replaceAll("(?<=.)/+$", "");
    return plain.contains("://") || plain.startsWith("file:") ? plain : Path.of(plain).toAbsolutePath().toString();
  }
}
