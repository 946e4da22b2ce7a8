package io.laketx.spark.service;

import io.laketx.v1.Limit;
import io.laketx.v1.PinVersionsRequest;
import io.laketx.v1.RenewPinRequest;
import io.laketx.v1.TableVersion;
import io.laketx.v1.UnpinRequest;
import java.lang.ref.Cleaner;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Versions that plans read, so that no purge takes their files: pins, renewed in the background.
 *
 * <p>A DataFrame is lazy, and its plan may run again at any time. So a version is held for as long as a plan that reads
 * it can be reached, and let go when the collector finds that none can. One pin serves all plans that read the same
 * version. A process that dies renews nothing, and its pins run out.
 */
public final class Pins {
  public static final int VERSIONS_PER_PIN = Limit.LIMIT_PIN_VERSIONS_VALUE;
  private static final int PINS_MAX = Limit.LIMIT_PINS_VALUE;
  private static final int RENEWALS_PER_LEASE = 3;
  private static final long LEASE_MS_MIN = 1_000;
  private static final Logger LOG = LoggerFactory.getLogger(Pins.class);
  private static final Cleaner CLEANER = Cleaner.create();

  private final Service service;
  private final Map<Key, Held> held = new LinkedHashMap<>();
  private ScheduledExecutorService background;
  private boolean areRenewed;

  Pins(Service service) {
    this.service = service;
  }

  private record Key(String tableId, List<Long> versions) {}

  private static final class Held {
    final String pinId;
    long leaseMs;
    int users;

    Held(String pinId, long leaseMs) {
      this.pinId = pinId;
      this.leaseMs = leaseMs;
    }
  }

  /** Whoever keeps it keeps the versions readable, unless it lets them go before. */
  public static final class Pin {
    private Cleaner.Cleanable end;

    public void letGo() {
      end.clean();
    }
  }

  public Pin hold(String tableId, long version) {
    return hold(tableId, List.of(version));
  }

  /** Some versions of a table, at most VERSIONS_PER_PIN. */
  public Pin hold(String tableId, List<Long> versions) {
    Key key = new Key(tableId, List.copyOf(versions));
    synchronized (this) {
      Held found = held.get(key);
      if (found != null) return use(key, found);
    }
    String pinId = newId();
    PinVersionsRequest.Builder asked =
        PinVersionsRequest.newBuilder().setPinId(pinId).setPrincipal(service.principal());
    for (long one : key.versions) asked.addTables(TableVersion.newBuilder().setTableId(tableId).setVersion(one));
    PinVersionsRequest request = asked.build();
    return taken(key, pinId, service.ask(stubs -> stubs.reads().pinVersions(request)).getLeaseMs());
  }

  /** The pin of a version that another plan holds; null: none does. */
  public synchronized Pin known(String tableId, long version) {
    Key key = new Key(tableId, List.of(version));
    Held found = held.get(key);
    return found == null ? null : use(key, found);
  }

  public String newId() {
    return Ids.uuid7();
  }

  /** A pin that came with another call, which named its id. */
  public Pin taken(String tableId, long version, String pinId, long leaseMs) {
    return taken(new Key(tableId, List.of(version)), pinId, leaseMs);
  }

  /** Ends a pin that nobody uses. */
  public void drop(String pinId) {
    later(() -> unpin(pinId));
  }

  private Pin taken(Key key, String pinId, long leaseMs) {
    synchronized (this) {
      Held other = held.get(key);
      if (other != null) {
        later(() -> unpin(pinId));
        return use(key, other);
      }
      Held mine = new Held(pinId, leaseMs);
      held.put(key, mine);
      if (held.size() > PINS_MAX) {
        var oldest = held.entrySet().iterator().next();
        held.remove(oldest.getKey());
        later(() -> unpin(oldest.getValue().pinId));
      }
      if (!areRenewed) renewLater(leaseMs);
      areRenewed = true;
      return use(key, mine);
    }
  }

  private Pin use(Key key, Held pin) {
    pin.users++;
    Pin handle = new Pin();
    handle.end = CLEANER.register(handle, () -> letGo(key, pin));
    return handle;
  }

  private synchronized void letGo(Key key, Held pin) {
    if (--pin.users == 0 && held.remove(key, pin)) later(() -> unpin(pin.pinId));
  }

  // -- in the background

  private synchronized ScheduledExecutorService background() {
    if (background == null) {
      background =
          Executors.newSingleThreadScheduledExecutor(
              work -> {
                Thread thread = new Thread(work, "laketx-pins");
                thread.setDaemon(true);
                return thread;
              });
    }
    return background;
  }

  private void later(Runnable work) {
    background().execute(work);
  }

  /** Runs work in the background, after so many milliseconds. */
  public void later(Runnable work, long pauseMs) {
    background().schedule(work, pauseMs, TimeUnit.MILLISECONDS);
  }

  private void renewLater(long leaseMs) {
    long pauseMs = Math.max(LEASE_MS_MIN, leaseMs) / RENEWALS_PER_LEASE;
    background().schedule(this::renewAll, pauseMs, TimeUnit.MILLISECONDS);
  }

  private void renewAll() {
    List<Map.Entry<Key, Held>> all;
    synchronized (this) {
      all = new ArrayList<>(held.entrySet());
    }
    long shortest = 60_000;
    for (var one : all) {
      Held pin = one.getValue();
      try {
        RenewPinRequest request = RenewPinRequest.newBuilder().setPinId(pin.pinId).build();
        pin.leaseMs = service.askOnce(stubs -> stubs.reads().renewPin(request)).getLeaseMs();
      } catch (LakeException error) {
        if (error.mayPass()) continue;
        LOG.warn("a version that a plan reads is held no longer: {}", error.getMessage());
        synchronized (this) {
          held.remove(one.getKey(), pin);
        }
      }
      shortest = Math.min(shortest, pin.leaseMs);
    }
    renewLater(shortest);
  }

  private void unpin(String pinId) {
    try {
      service.askOnce(stubs -> stubs.reads().unpin(UnpinRequest.newBuilder().setPinId(pinId).build()));
    } catch (LakeException error) {
      LOG.debug("a pin is left to its lease: {}", error.getMessage());
    }
  }
}
