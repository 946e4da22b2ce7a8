package io.laketx.spark.service;

import io.laketx.v1.ErrorKind;
import java.util.Map;
import java.util.TreeMap;

/**
 * A refusal, in a sentence: the reason is a word that stays, the facts say what is meant, the message what to do.
 *
 * <p>It is an IllegalArgumentException because Spark shows that to Python as an error with a message; what it doesn't
 * know becomes a page of Java.
 */
public class LakeException extends IllegalArgumentException {
  private static final long serialVersionUID = 1;

  private final ErrorKind kind;
  private final String reason;
  private final String message; // without the reason
  private final transient Map<String, String> facts;
  private final boolean isOwn;

  public LakeException(ErrorKind kind, String reason, String message, Map<String, String> facts) {
    this(kind, reason, message, facts, null);
  }

  public LakeException(ErrorKind kind, String reason, String message, Map<String, String> facts, Throwable cause) {
    this(kind, reason, message, facts, cause, false);
  }

  private LakeException(
      ErrorKind kind, String reason, String message, Map<String, String> facts, Throwable cause, boolean isOwn) {
    super(text(reason, message, facts), cause);
    this.kind = kind;
    this.reason = reason;
    this.message = message;
    this.facts = facts;
    this.isOwn = isOwn;
  }

  /** What the caller got wrong. */
  public static LakeException invalid(String reason, String message) {
    return new LakeException(ErrorKind.ERROR_KIND_INVALID, reason, message, Map.of(), null, true);
  }

  /** What the caller does next. */
  public ErrorKind kind() {
    return kind;
  }

  /** Whether a renewal in the background may succeed later; rights and tokens come back, too. */
  public boolean mayPass() {
    return kind == ErrorKind.ERROR_KIND_UNAVAILABLE
        || kind == ErrorKind.ERROR_KIND_EXHAUSTED
        || kind == ErrorKind.ERROR_KIND_DENIED;
  }

  public String reason() {
    return reason;
  }

  /** Whether the service has not said it. */
  boolean isOwn() {
    return isOwn;
  }

  String message() {
    return message;
  }

  Map<String, String> facts() {
    return facts == null ? Map.of() : facts;
  }

  private static String text(String reason, String message, Map<String, String> facts) {
    StringBuilder text = new StringBuilder(reason);
    if (!message.isEmpty()) text.append(": ").append(message);
    if (!facts.isEmpty()) {
      text.append(" (");
      String comma = "";
      for (var one : new TreeMap<>(facts).entrySet()) {
        text.append(comma).append(one.getKey()).append('=').append(one.getValue());
        comma = ", ";
      }
      text.append(')');
    }
    return text.toString();
  }
}
