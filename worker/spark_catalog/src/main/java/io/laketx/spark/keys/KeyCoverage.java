package io.laketx.spark.keys;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * What a key index covers: of a version all files, but those that are listed.
 *
 * <p>`worker/files/key_coverage.py` writes coverages, and tells their form.
 *
 * @param history of the service, that the version is of
 * @param layers by bucket number, their paths below the table's folder
 * @param others by bucket number, the files that no layer covers
 */
record KeyCoverage(
    String history, long version, Map<Integer, List<String>> layers, Map<Integer, List<KeyLayer.File>> others) {
  static final String SUFFIX = ".coverage";
  private static final int DIGEST_BYTES = 32;
  private static final ObjectMapper JSON = new ObjectMapper();

  static KeyCoverage of(String facts, String path, byte[] content) throws IOException {
    int end = Math.min(DIGEST_BYTES, content.length);
    byte[] text = Arrays.copyOfRange(content, end, content.length);
    boolean isWhole = MessageDigest.isEqual(Digests.sha256().digest(text), Arrays.copyOf(content, end));
    if (!isWhole) throw new DamagedIndexException(path);
    JsonNode fields = JSON.readTree(text);
    if (!fields.get("facts").asText().equals(facts)) throw new DamagedIndexException(path);
    Map<Integer, List<String>> layers = new HashMap<>();
    for (JsonNode one : fields.get("layers")) {
      List<String> paths = layers.computeIfAbsent(one.get(0).asInt(), none -> new ArrayList<>());
      for (int at = 1; at < one.size(); at++) paths.add(one.get(at).asText());
    }
    List<byte[]> partitions = new ArrayList<>();
    for (JsonNode one : fields.get("partitions")) partitions.add(Base64.getDecoder().decode(one.asText()));
    Map<Integer, List<KeyLayer.File>> others = new HashMap<>();
    for (JsonNode one : fields.get("others")) {
      KeyLayer.File file = new KeyLayer.File(one.get(1).asText(), partitions.get(one.get(2).asInt()));
      others.computeIfAbsent(one.get(0).asInt(), none -> new ArrayList<>()).add(file);
    }
    return new KeyCoverage(fields.get("history").asText(), fields.get("version").asLong(), layers, others);
  }
}
