package io.laketx.spark.keys;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.BitSet;
import java.util.List;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.Platform;

/**
 * The head of a layer of a key index: which files it covers, and in which block the image of a hash is.
 *
 * <p>`worker/files/key_layer.py` writes layers, and tells their form.
 */
public record KeyLayer(String path, int bucket, long images, File[] files, long[] firstHashes, long[] digests, long begin) {
  private static final byte[] MAGIC = "LTXKEY02".getBytes(StandardCharsets.US_ASCII);
  private static final int BLOCK_IMAGES = 1 << 13;
  private static final int RUN_BLOCKS = 1 << 7; // read at once
  private static final int GAP_BLOCKS = 2; // so many are read though no key needs them, rather than begin another request
  private static final int SHORT_FILES = 1 << 15; // so many fit into numbers of two bytes
  private static final long BLOCKS_MAX = 1 << 24;
  private static final int DIGEST_BYTES = 32;
  private static final ObjectMapper JSON = new ObjectMapper();

  /** A data file that it covers, and its partition as a message. */
  public record File(String path, byte[] partition) {}

  /** Learns of an image of a key: the place of its hash among those that are asked for, and the place of its file. */
  public interface Images {
    void add(int hash, int file, boolean isTombstone);
  }

  static KeyLayer of(String facts, String path, InputStream in) throws IOException {
    ByteArrayOutputStream front = new ByteArrayOutputStream();
    ByteBuffer start = part(in, MAGIC.length + 4, front, path);
    byte[] magic = new byte[MAGIC.length];
    start.get(magic);
    long length = Integer.toUnsignedLong(start.getInt());
    if (!Arrays.equals(magic, MAGIC)) throw new DamagedIndexException(path);
    JsonNode head = json(part(in, length, front, path).array(), path);
    long images = head.path("images").asLong(-1);
    long blocks = (images + BLOCK_IMAGES - 1) / BLOCK_IMAGES;
    if (images < 0 || blocks > BLOCKS_MAX) throw new DamagedIndexException(path);
    ByteBuffer numbers = part(in, 16 * blocks, front, path);
    byte[] digest = Digests.sha256().digest(front.toByteArray());
    boolean isWhole = MessageDigest.isEqual(digest, in.readNBytes(DIGEST_BYTES));
    if (!isWhole || !facts.equals(head.path("facts").asText())) throw new DamagedIndexException(path);
    long[] firstHashes = new long[(int) blocks];
    numbers.asLongBuffer().get(firstHashes);
    long[] digests = new long[(int) blocks];
    numbers.asLongBuffer().position((int) blocks).get(digests);
    int bucket = head.path("bucket").asInt();
    return new KeyLayer(path, bucket, images, filesOf(head), firstHashes, digests, front.size() + DIGEST_BYTES);
  }

  private static ByteBuffer part(InputStream in, long length, ByteArrayOutputStream front, String path) throws IOException {
    if (length > Integer.MAX_VALUE) throw new DamagedIndexException(path);
    byte[] found = in.readNBytes((int) length);
    if (found.length < length) throw new DamagedIndexException(path);
    front.write(found);
    return ByteBuffer.wrap(found).order(ByteOrder.LITTLE_ENDIAN);
  }

  private static JsonNode json(byte[] text, String path) throws IOException {
    try {
      return JSON.readTree(text);
    } catch (IOException error) {
      throw new DamagedIndexException(path, error);
    }
  }

  private static File[] filesOf(JsonNode head) {
    List<byte[]> partitions = new ArrayList<>();
    for (JsonNode one : head.get("partitions")) partitions.add(Base64.getDecoder().decode(one.asText()));
    JsonNode paths = head.get("files");
    File[] found = new File[paths.size()];
    for (int at = 0; at < found.length; at++) {
      found[at] = new File(paths.get(at).asText(), partitions.get(head.get("of").get(at).asInt()));
    }
    return found;
  }

  // -- images

  /** `hashes` are different ones, and ascend as numbers without a sign. */
  void find(FSDataInputStream in, long[] hashes, Images found) throws IOException {
    BitSet blocks = new BitSet();
    for (long hash : hashes) {
      int last = below(firstHashes, hash, true) - 1;
      if (last >= 0) blocks.set(Math.max(below(firstHashes, hash, false) - 1, 0), last + 1);
    }
    for (int begin = blocks.nextSetBit(0); begin >= 0; ) {
      int end = begin + 1;
      int next = blocks.nextSetBit(end);
      while (next >= 0 && next < end + GAP_BLOCKS && next < begin + RUN_BLOCKS) {
        end = next + 1;
        next = blocks.nextSetBit(end);
      }
      read(in, begin, end, hashes, found);
      begin = next;
    }
  }

  /** How many of the ascending numbers are below that one, or are it as well. */
  private static int below(long[] ascending, long number, boolean orEqual) {
    int low = 0;
    int high = ascending.length;
    while (low < high) {
      int middle = (low + high) >>> 1;
      int compared = Long.compareUnsigned(ascending[middle], number);
      if (compared < 0 || orEqual && compared == 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private void read(FSDataInputStream in, int begin, int end, long[] hashes, Images found) throws IOException {
    int width = 8 + (files.length <= SHORT_FILES ? 2 : 4);
    long first = (long) begin * BLOCK_IMAGES;
    int total = (int) (Math.min((long) end * BLOCK_IMAGES, images) - first);
    byte[] content = new byte[total * width];
    in.readFully(this.begin + first * width, content);
    int hash = below(hashes, firstHashes[begin], false);
    for (int block = begin, from = 0; block < end; block++) {
      int count = Math.min(BLOCK_IMAGES, total - (block - begin) * BLOCK_IMAGES);
      long digest = XXH64.hashUnsafeBytes(content, Platform.BYTE_ARRAY_OFFSET + from, count * width, 0);
      if (digest != digests[block]) throw new DamagedIndexException(path);
      ByteBuffer body = ByteBuffer.wrap(content, from, count * width).slice().order(ByteOrder.LITTLE_ENDIAN);
      for (int at = 0; at < count && hash < hashes.length; at++) {
        long its = body.getLong(8 * at);
        while (hash < hashes.length && Long.compareUnsigned(hashes[hash], its) < 0) hash++;
        if (hash == hashes.length || hashes[hash] != its) continue;
        int place = 8 * count + (width - 8) * at;
        int number = width == 10 ? Short.toUnsignedInt(body.getShort(place)) : body.getInt(place);
        found.add(hash, number >>> 1, (number & 1) == 1);
      }
      from += count * width;
    }
  }
}
