package io.laketx.spark.service;

import io.laketx.v1.ErrorKind;
import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The service of a folder: found where it runs, started by a Python where it doesn't.
 *
 * <p>Which process serves a folder, and how it is elected, is decided in metaservice/client/folder_service.py alone. Here
 * `_laketx/server.json` is read, and `python -m metaservice.client.folder_service FOLDER` asked where nobody listens.
 */
final class FolderService {
  private static final int WIRE = 2; // as in metaservice/client/folder_service.py
  private static final long START_TIMEOUT_S = 60;
  private static final Pattern ADDRESS = Pattern.compile("\"address\": \"unix:([A-Za-z0-9_./-]+)\"");
  private static final Pattern WIRE_NUMBER = Pattern.compile("\"wire\": ([0-9]+)");

  private final String folder;
  private final String python;

  FolderService(String folder, String python) {
    this.folder = folder;
    this.python = python;
  }

  /** The path of its socket; somebody listens there. */
  Path findOrStart() {
    Path socket = find();
    if (socket != null) return socket;
    if (!Files.isDirectory(Path.of(folder))) {
      String message = "there is no such folder: correct the catalog's setting `uri`, or make it (laketx.connect does)";
      throw new LakeException(ErrorKind.ERROR_KIND_NOT_FOUND, "FOLDER_UNUSABLE", message, Map.of("folder", folder));
    }
    if (python.isEmpty()) {
      throw new LakeException(
          ErrorKind.ERROR_KIND_UNAVAILABLE,
          "SERVER_NOT_RUNNING",
          "nobody serves the folder, and nobody here can start it: set the catalog's setting `python` to a Python that"
              + " has laketx, or use the folder from there first (laketx --folder FOLDER ping)",
          Map.of("folder", folder));
    }
    start();
    socket = find();
    if (socket == null) {
      throw new LakeException(
          ErrorKind.ERROR_KIND_UNAVAILABLE, "SERVER_UNREACHABLE", "it was started, but nobody listens", Map.of("folder", folder));
    }
    return socket;
  }

  private Path find() {
    String said;
    try {
      said = Files.readString(Path.of(folder, "_laketx", "server.json"), StandardCharsets.UTF_8);
    } catch (IOException absent) {
      return null;
    }
    Matcher address = ADDRESS.matcher(said);
    if (!address.find()) return null;
    Path socket = Path.of(address.group(1));
    try (SocketChannel probe = SocketChannel.open(UnixDomainSocketAddress.of(socket))) {
      checkWire(said);
      return probe.isConnected() ? socket : null;
    } catch (IOException nobody) {
      return null;
    }
  }

  private void checkWire(String said) {
    Matcher wire = WIRE_NUMBER.matcher(said);
    if (wire.find() && Integer.parseInt(wire.group(1)) != WIRE) {
      throw new LakeException(
          ErrorKind.ERROR_KIND_BLOCKED,
          "SERVER_OTHER_RELEASE",
          "another release of laketx serves the folder: it ends by itself when nobody uses it, then ask again",
          Map.of("folder", folder));
    }
  }

  private void start() {
    try {
      Process starter =
          new ProcessBuilder(python, "-m", "metaservice.client.folder_service", folder).redirectErrorStream(true).start();
      starter.getOutputStream().close();
      String said = new String(starter.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
      if (!starter.waitFor(START_TIMEOUT_S, TimeUnit.SECONDS)) starter.destroyForcibly();
      else if (starter.exitValue() == 0) return;
      throw new LakeException(
          ErrorKind.ERROR_KIND_BLOCKED, "SERVER_FAILED", said, Map.of("folder", folder, "python", python));
    } catch (IOException error) {
      String message = "the Python that should start it can't be run: correct the catalog's setting `python`";
      throw new LakeException(
          ErrorKind.ERROR_KIND_BLOCKED, "SERVER_FAILED", message, Map.of("folder", folder, "python", python), error);
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new LakeException(
          ErrorKind.ERROR_KIND_UNAVAILABLE, "SERVER_SLOW", "interrupted while it starts", Map.of("folder", folder), error);
    }
  }
}
