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
 * spark.sql.catalog.lake.uri        laketxs://meta:7070 (TLS), laketx://meta:7070, unix:path of a socket,
 *                                   or a folder with a service of its own
 * spark.sql.catalog.lake.warehouse  where the data files lie; a folder is its own
 * spark.sql.catalog.lake.user       who the history says it was
 * spark.sql.catalog.lake.python     a Python that has laketx, which starts a folder's service and imports files
 * </pre>
 *
 * <p>And what the driver shows to a service: see {@link Credentials}.
 */
public record LakeAddress(String uri, String warehouse, String user, String python, Credentials shown) {
  private static final String SCHEME = "laketx://";
  private static final String WITH_TLS = "laketxs://";
  private static final String SOCKET = "unix:";
  private static final Pattern HOST_AND_PORT = Pattern.compile("([A-Za-z0-9.-]+|\\[[0-9A-Fa-f:]+\\]):([0-9]{1,5})");

  public static LakeAddress of(String catalog, CaseInsensitiveStringMap options) {
    String prefix = "spark.sql.catalog." + catalog;
    String uri = options.getOrDefault("uri", "");
    if (uri.isEmpty()) {
      throw LakeException.invalid(
          "ADDRESS_MISSING", "set " + prefix + ".uri to laketxs://host:port, or to a folder with a service of its own");
    }
    String warehouse = options.getOrDefault("warehouse", "");
    boolean isFolder = isFolder(uri);
    if (isFolder) {
      if (uri.contains("://") || HOST_AND_PORT.matcher(uri).matches()) {
        String said = uri + " is neither a folder nor laketxs://host:port nor laketx://host:port";
        throw LakeException.invalid("ADDRESS_INVALID", said + ": correct " + prefix + ".uri");
      }
      uri = absolute(uri);
      if (warehouse.isEmpty()) warehouse = uri;
    } else if (warehouse.isEmpty()) {
      throw LakeException.invalid("WAREHOUSE_MISSING", "set " + prefix + ".warehouse to where the data files lie");
    }
    String user = options.getOrDefault("user", "");
    Credentials shown = isFolder ? Credentials.NONE : Credentials.of(options);
    return new LakeAddress(uri, absolute(warehouse), user, options.getOrDefault("python", ""), shown);
  }

  boolean isFolder() {
    return isFolder(uri);
  }

  private static boolean isFolder(String uri) {
    return !uri.startsWith(SCHEME) && !uri.startsWith(WITH_TLS) && !uri.startsWith(SOCKET);
  }

  boolean hasTls() {
    return uri.startsWith(WITH_TLS);
  }

  /** Null where it is no socket of the file system. */
  Path socket() {
    return uri.startsWith(SOCKET) ? Path.of(uri.substring(SOCKET.length())) : null;
  }

  /** The service, as the command line takes it. */
  String server() {
    String plain = uri.replaceAll("/+$", "");
    return plain.startsWith(SCHEME) ? plain.substring(SCHEME.length()) : plain;
  }

  /** A token goes to no other machine without TLS. */
  void checkToken() {
    if (!shown.hasToken() || hasTls() || shown.isInsecure() || isFolder() || socket() != null) return;
    String host = hostAndPort().group(1);
    if (host.equals("localhost") || host.startsWith("127.") || host.equals("[::1]")) return;
    throw LakeException.invalid(
        "TOKEN_NEEDS_TLS", "a token would be sent to " + uri + " as it is: use " + WITH_TLS + server());
  }

  /** Host and port of a service. */
  Matcher hostAndPort() {
    Matcher found = HOST_AND_PORT.matcher(server().replaceFirst("^" + WITH_TLS, ""));
    if (!found.matches()) throw LakeException.invalid("ADDRESS_INVALID", uri + " is not laketxs://host:port");
    return found;
  }

  private static String absolute(String path) {
    String plain = path.replaceAll("(?<=.)/+$", "");
    return plain.contains("://") || plain.startsWith("file:") ? plain : Path.of(plain).toAbsolutePath().toString();
  }
}
