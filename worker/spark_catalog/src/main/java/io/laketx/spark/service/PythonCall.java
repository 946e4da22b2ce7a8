package io.laketx.spark.service;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.laketx.v1.ErrorKind;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** A command of `laketx`, run by the catalog's Python: the way to what Python alone can do. */
public final class PythonCall {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int SAID_MAX = 2_000;
  private static final Map<Integer, ErrorKind> KINDS =
      Map.of(
          3, ErrorKind.ERROR_KIND_UNAVAILABLE,
          4, ErrorKind.ERROR_KIND_STALE,
          5, ErrorKind.ERROR_KIND_NOT_FOUND,
          6, ErrorKind.ERROR_KIND_UNAVAILABLE);

  private PythonCall() {}

  /** What it answers as JSON. The command has its options with it; `instead` says how to do it without a Python here. */
  public static JsonNode run(LakeAddress address, String instead, List<String> command, List<String> words) {
    if (address.python().isEmpty()) {
      throw new LakeException(
          ErrorKind.ERROR_KIND_BLOCKED,
          "PYTHON_MISSING",
          "set the catalog's setting `python` to a Python that has laketx, or " + instead,
          Map.of());
    }
    List<String> line = new ArrayList<>(List.of(address.python(), "-m", "metaservice.cli"));
    line.addAll(command);
    line.addAll(List.of("-o", "json"));
    line.addAll(address.isFolder() ? List.of("--folder", address.uri()) : List.of("--server", address.server()));
    line.addAll(List.of("--warehouse", address.warehouse()));
    if (!address.user().isEmpty()) line.addAll(List.of("--user", address.user()));
    line.add("--");
    line.addAll(words);
    try {
      return answer(line, address.shown());
    } catch (IOException error) {
      String message = "the Python of the catalog's setting `python` can't be run: correct it, or " + instead;
      throw new LakeException(
          ErrorKind.ERROR_KIND_BLOCKED, "PYTHON_FAILED", message, Map.of("python", address.python()), error);
    }
  }

  private static JsonNode answer(List<String> line, Credentials shown) throws IOException {
    Path errors = Files.createTempFile("laketx-", ".txt");
    try {
      ProcessBuilder python = new ProcessBuilder(line).redirectError(errors.toFile());
      shown.putInto(python.environment());
      Process process = python.start();
      process.getOutputStream().close();
      int ended = waitFor(process);
      if (ended == 0) return JSON.readTree(process.getInputStream());
      throw refusal(ended, Files.readString(errors, StandardCharsets.UTF_8).strip());
    } finally {
      Files.deleteIfExists(errors);
    }
  }

  /** A cancelled statement ends it. */
  private static int waitFor(Process process) {
    try {
      return process.waitFor();
    } catch (InterruptedException stop) {
      process.destroy();
      Thread.currentThread().interrupt();
      throw new LakeException(ErrorKind.ERROR_KIND_UNAVAILABLE, "CANCELLED", "the statement was cancelled", Map.of(), stop);
    }
  }

  private static LakeException refusal(int ended, String said) throws IOException {
    String last = said.substring(said.lastIndexOf('\n') + 1);
    if (!last.startsWith("{\"error\"")) {
      String end = said.substring(Math.max(0, said.length() - SAID_MAX));
      return new LakeException(ErrorKind.ERROR_KIND_BLOCKED, "PYTHON_FAILED", end, Map.of("exit", Integer.toString(ended)));
    }
    JsonNode error = JSON.readTree(last).get("error");
    Map<String, String> facts = new TreeMap<>();
    error.get("facts").properties().forEach(one -> facts.put(one.getKey(), one.getValue().asText()));
    ErrorKind kind = KINDS.getOrDefault(ended, ErrorKind.ERROR_KIND_INVALID);
    return new LakeException(kind, error.get("reason").asText(), error.get("message").asText(), facts);
  }
}
