package io.laketx.spark.service;

import io.grpc.ChannelCredentials;
import io.grpc.TlsChannelCredentials;
import io.laketx.v1.ErrorKind;
import java.io.File;
import java.io.IOException;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** What the driver trusts and shows to a service: the catalog's settings, or the environment where they say nothing. */
final class Credentials {
  static final String TOKEN = "token";
  static final String TOKEN_FILE = "token_file";
  static final String TOKEN_COMMAND = "token_command";
  static final Credentials NONE = new Credentials(Map.of());
  private static final String CA_FILE = "ca_file";
  private static final String CERT_FILE = "cert_file";
  private static final String KEY_FILE = "key_file";
  private static final String INSECURE = "insecure";
  private static final List<String> KEYS =
      List.of(CA_FILE, CERT_FILE, KEY_FILE, TOKEN, TOKEN_FILE, TOKEN_COMMAND, INSECURE);

  private final Map<String, String> given;

  private Credentials(Map<String, String> given) {
    this.given = given;
  }

  static Credentials of(CaseInsensitiveStringMap options) {
    Map<String, String> found = new TreeMap<>();
    for (String key : KEYS) add(found, key, options.get(key));
    if (found.isEmpty()) {
      for (String key : KEYS) add(found, key, System.getenv(variable(key)));
    }
    return new Credentials(found);
  }

  private static void add(Map<String, String> found, String key, String value) {
    if (value != null && !value.isEmpty()) found.put(key, value);
  }

  private static String variable(String key) {
    return "LAKETX_" + key.toUpperCase(Locale.ROOT);
  }

  /** Empty where nothing is said. */
  String get(String key) {
    return given.getOrDefault(key, "");
  }

  boolean hasToken() {
    return given.containsKey(TOKEN) || given.containsKey(TOKEN_FILE) || given.containsKey(TOKEN_COMMAND);
  }

  boolean isInsecure() {
    return get(INSECURE).equalsIgnoreCase("true");
  }

  ChannelCredentials forTls() {
    TlsChannelCredentials.Builder found = TlsChannelCredentials.newBuilder();
    try {
      if (given.containsKey(CA_FILE)) found.trustManager(new File(get(CA_FILE)));
      if (given.containsKey(CERT_FILE) != given.containsKey(KEY_FILE)) {
        throw invalid("a certificate and its key belong together: set cert_file and key_file", null);
      }
      if (given.containsKey(CERT_FILE)) found.keyManager(new File(get(CERT_FILE)), new File(get(KEY_FILE)));
      return found.build();
    } catch (IOException error) {
      throw invalid("a file can't be read: " + error.getMessage(), error);
    }
  }

  static LakeException invalid(String message, Throwable cause) {
    return new LakeException(ErrorKind.ERROR_KIND_INVALID, "CREDENTIALS_INVALID", message, Map.of(), cause);
  }

  /** For a process of ours, which shows the same. */
  void putInto(Map<String, String> environment) {
    for (String key : KEYS) environment.remove(variable(key));
    given.forEach((key, value) -> environment.put(variable(key), value));
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Credentials one && one.given.equals(given);
  }

  @Override
  public int hashCode() {
    return given.hashCode();
  }

  /** Without what is secret. */
  @Override
  public String toString() {
    return given.keySet().toString();
  }
}
