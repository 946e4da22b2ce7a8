package io.laketx.spark.service;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.laketx.v1.ErrorKind;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** The token of every call, from a setting, a file that changes, or a command that prints it. No text names it. */
final class Tokens {
  private static final long COMMAND_S = 60;
  private static final double KEEP_S = 300; // a printed token that doesn't say when it expires
  private static final double EARLY_S = 60; // before a token expires its command runs again,
  private static final double EARLY_SHARE = 0.2; // or at this share of a short life
  private static final long AGAIN_S = 10; // after a command that failed, while the last token is good

  private final Credentials shown;
  private String token;
  private long generation;
  private List<Object> seen = List.of();
  private long endsMs;
  private long dueNs;

  Tokens(Credentials shown) {
    this.shown = shown;
  }

  boolean exist() {
    return shown.hasToken();
  }

  /** Null where calls have none. */
  synchronized String current() {
    if (exist() && (token == null || isDue())) read();
    return token;
  }

  /** Of the token that a call begins with. */
  synchronized long generation() {
    current();
    return generation;
  }

  /** After a call that began with that generation was refused; returns whether it is worth a repeat. */
  synchronized boolean renew(long refused) {
    if (exist() && generation == refused) read();
    return exist();
  }

  private boolean isDue() {
    if (!shown.get(Credentials.TOKEN).isEmpty()) return false;
    if (shown.get(Credentials.TOKEN_FILE).isEmpty()) return System.nanoTime() - dueNs >= 0;
    List<Object> now = mark();
    return !now.isEmpty() && !now.equals(seen);
  }

  private void read() {
    String found = shown.get(Credentials.TOKEN);
    if (found.isEmpty()) found = shown.get(Credentials.TOKEN_FILE).isEmpty() ? printed() : written();
    found = found.strip();
    if (found.isEmpty() || !found.chars().allMatch(one -> one > ' ' && one <= '~')) {
      throw denied("TOKEN_MISSING", "the source of the token holds " + (found.isEmpty() ? "nothing" : "no token"), null);
    }
    token = found;
    generation++;
  }

  private String written() {
    seen = mark();
    try {
      return Files.readString(Path.of(shown.get(Credentials.TOKEN_FILE)), StandardCharsets.ISO_8859_1);
    } catch (IOException error) {
      throw denied("TOKEN_MISSING", "the token's file can't be read: " + error.getMessage(), error);
    }
  }

  /** Of the file, empty while it is not there. */
  private List<Object> mark() {
    try {
      var found = Files.readAttributes(Path.of(shown.get(Credentials.TOKEN_FILE)), BasicFileAttributes.class);
      return List.of(found.lastModifiedTime(), found.size(), String.valueOf(found.fileKey()));
    } catch (IOException error) {
      return List.of();
    }
  }

  private String printed() {
    String found;
    try {
      found = run(shown.get(Credentials.TOKEN_COMMAND));
    } catch (LakeException error) {
      if (token == null || System.currentTimeMillis() >= endsMs) throw error;
      dueNs = System.nanoTime() + TimeUnit.SECONDS.toNanos(AGAIN_S);
      return token;
    }
    double expiry = expiry(found);
    double leftS = expiry < 0 ? KEEP_S : Math.max(0, expiry - System.currentTimeMillis() / 1e3);
    double earlyS = expiry < 0 ? 0 : Math.min(EARLY_S, EARLY_SHARE * leftS);
    endsMs = System.currentTimeMillis() + (long) (leftS * 1e3);
    dueNs = System.nanoTime() + (long) (Math.max(1, leftS - earlyS) * 1e9);
    return found;
  }

  /** What it prints; what it says on stderr goes to the driver's. */
  private static String run(String command) {
    ProcessBuilder shell = new ProcessBuilder("/bin/sh", "-c", command);
    shell.redirectInput(new File("/dev/null")).redirectError(ProcessBuilder.Redirect.INHERIT);
    try {
      Process process = shell.start();
      if (!process.waitFor(COMMAND_S, TimeUnit.SECONDS)) {
        process.destroyForcibly();
        throw denied("TOKEN_COMMAND_FAILED", "it did not end within " + COMMAND_S + " s", null);
      }
      if (process.exitValue() != 0) {
        throw denied("TOKEN_COMMAND_FAILED", "it ended with " + process.exitValue() + "; see stderr", null);
      }
      return new String(process.getInputStream().readAllBytes(), StandardCharsets.ISO_8859_1).strip();
    } catch (IOException error) {
      throw denied("TOKEN_COMMAND_FAILED", error.getMessage(), error);
    } catch (InterruptedException stop) {
      Thread.currentThread().interrupt();
      throw new LakeException(ErrorKind.ERROR_KIND_UNAVAILABLE, "CANCELLED", "the statement was cancelled", Map.of(), stop);
    }
  }

  /** When a JWT expires, in seconds since 1970; negative: it is none, or doesn't say. */
  private static double expiry(String token) {
    String[] parts = token.split("\\.", -1);
    if (parts.length != 3) return -1;
    try {
      return new ObjectMapper().readTree(Base64.getUrlDecoder().decode(parts[1])).path("exp").asDouble(-1);
    } catch (IOException | IllegalArgumentException error) {
      return -1;
    }
  }

  private static LakeException denied(String reason, String message, Throwable cause) {
    return new LakeException(ErrorKind.ERROR_KIND_DENIED, reason, message, Map.of(), cause);
  }
}
