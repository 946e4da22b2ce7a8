package io.laketx.spark.service;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ClientInterceptors;
import io.grpc.ForwardingClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.okhttp.OkHttpChannelBuilder;
import io.laketx.v1.CatalogServiceGrpc;
import io.laketx.v1.ErrorKind;
import io.laketx.v1.Limit;
import io.laketx.v1.MaintenanceServiceGrpc;
import io.laketx.v1.Principal;
import io.laketx.v1.ReadServiceGrpc;
import io.laketx.v1.TransactionServiceGrpc;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * MetaService, asked from the driver. A call that nobody answers is repeated for a minute, between attempts a folder's
 * service is started anew; whatever is refused comes as a {@link LakeException}.
 */
public final class Service {
  private static final String CLIENT = "laketx-spark-sql";
  private static final int MESSAGE_BYTES_MAX = Limit.LIMIT_MESSAGE_BYTES_VALUE;
  private static final Set<String> FINAL =
      Set.of("SERVER_NOT_RUNNING", Refusals.TLS_FAILED, "TOO_MANY_INLINED_ROWS"); // the last goes into files
  private static final long CALL_S = 120;
  private static final long BUDGET_NS = TimeUnit.SECONDS.toNanos(60);
  private static final long PAUSE_MS_MIN = 20;
  private static final long PAUSE_MS_MAX = 2_000;
  private static final Metadata.Key<String> PRINCIPAL =
      Metadata.Key.of("x-laketx-principal", Metadata.ASCII_STRING_MARSHALLER);
  /** What its readers know that earlier releases don't. */
  private static final Metadata.Key<String> FEATURES =
      Metadata.Key.of("x-laketx-features", Metadata.ASCII_STRING_MARSHALLER);
  private static final String READ = "inlined_rows,version_conditions,forks,partial_images";
  /** What its writers say when they begin. */
  public static final List<String> WRITTEN = List.of("column_defaults", "forks", "delete_sets", "row_ids");
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final Map<LakeAddress, Service> OPEN = new ConcurrentHashMap<>();

  private final LakeAddress address;
  private final Tokens tokens;
  private final Pins pins = new Pins(this);
  private Path socket;
  private Stubs stubs;

  private Service(LakeAddress address) {
    this.address = address;
    tokens = new Tokens(address.shown());
  }

  /** One for each address, for as long as the JVM lives; it connects with the first call. */
  public static Service of(LakeAddress address) {
    return OPEN.computeIfAbsent(address, Service::new);
  }

  public LakeAddress address() {
    return address;
  }

  public Pins pins() {
    return pins;
  }

  public Principal principal() {
    return Principal.newBuilder().setName(address.user()).setClient(CLIENT).build();
  }

  /** The calls of one connection. */
  public record Stubs(
      ManagedChannel channel,
      CatalogServiceGrpc.CatalogServiceBlockingStub catalog,
      ReadServiceGrpc.ReadServiceBlockingStub reads,
      TransactionServiceGrpc.TransactionServiceBlockingStub transactions,
      MaintenanceServiceGrpc.MaintenanceServiceBlockingStub maintenance) {

    private static Stubs of(ManagedChannel channel, Channel calls) {
      return new Stubs(
          channel,
          CatalogServiceGrpc.newBlockingStub(calls),
          ReadServiceGrpc.newBlockingStub(calls),
          TransactionServiceGrpc.newBlockingStub(calls),
          MaintenanceServiceGrpc.newBlockingStub(calls));
    }
  }

  /** Its answer. The call is one that may be repeated: a read, or a change that carries an id of its own. */
  public <T> T ask(Function<Stubs, T> call) {
    long began = System.nanoTime();
    for (int attempt = 0; ; attempt++) {
      LakeException refusal;
      try {
        return once(call, stubs(attempt > 0));
      } catch (StatusRuntimeException error) {
        refusal = Refusals.of(error);
      } catch (LakeException error) {
        refusal = error;
      }
      boolean mayPass = refusal.kind() == ErrorKind.ERROR_KIND_UNAVAILABLE || refusal.kind() == ErrorKind.ERROR_KIND_EXHAUSTED;
      boolean isLate = System.nanoTime() - began > BUDGET_NS;
      boolean isFinal = FINAL.contains(refusal.reason());
      if (!mayPass || isLate || isFinal || Thread.currentThread().isInterrupted() || !pause(attempt)) throw refusal;
    }
  }

  /** Its answer to a call of the background: asked once, and of a connection that is there alone. */
  <T> T askOnce(Function<Stubs, T> call) {
    Stubs known;
    synchronized (this) {
      known = stubs;
    }
    if (known == null) throw new LakeException(ErrorKind.ERROR_KIND_UNAVAILABLE, "RPC_UNAVAILABLE", "not connected", Map.of());
    try {
      return once(call, known);
    } catch (StatusRuntimeException error) {
      throw Refusals.of(error);
    }
  }

  /** A call that is refused for its token is repeated with the one that its source has then. */
  private <T> T once(Function<Stubs, T> call, Stubs to) {
    long generation = tokens.generation();
    try {
      return call.apply(to);
    } catch (StatusRuntimeException error) {
      if (error.getStatus().getCode() != Status.Code.UNAUTHENTICATED || !tokens.renew(generation)) throw error;
      return call.apply(to);
    }
  }

  private static boolean pause(int attempt) {
    long most = Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN << Math.min(attempt, 10));
    try {
      Thread.sleep(most / 2 + ThreadLocalRandom.current().nextLong(most / 2 + 1));
      return true;
    } catch (InterruptedException stop) {
      Thread.currentThread().interrupt();
      return false;
    }
  }

  /** Of the connection that is there; `again`: the last call found nobody. */
  private synchronized Stubs stubs(boolean again) {
    if (address.isFolder() && (stubs == null || again)) {
      Path found = new FolderService(address.uri(), address.python()).findOrStart();
      if (stubs != null && found.equals(socket)) {
        stubs.channel.resetConnectBackoff();
      } else {
        if (stubs != null) stubs.channel.shutdown();
        socket = found;
        stubs = null;
      }
    }
    if (stubs == null) {
      ManagedChannel channel = channel();
      stubs = Stubs.of(channel, ClientInterceptors.intercept(channel, new EachCall()));
    }
    return stubs;
  }

  private ManagedChannel channel() {
    address.checkToken();
    return builder().maxInboundMessageSize(MESSAGE_BYTES_MAX).build();
  }

  private OkHttpChannelBuilder builder() {
    Path path = address.isFolder() ? socket : address.socket();
    if (path != null) {
      var builder = OkHttpChannelBuilder.forAddress("localhost", 1).socketFactory(UnixSocket.factory(path));
      return builder.overrideAuthority("localhost").proxyDetector(any -> null).usePlaintext();
    }
    var found = address.hostAndPort();
    String host = found.group(1);
    int port = Integer.parseInt(found.group(2));
    if (!address.hasTls()) return OkHttpChannelBuilder.forAddress(host, port).usePlaintext();
    ChannelCredentials tls = address.shown().forTls();
    try {
      return OkHttpChannelBuilder.forAddress(host, port, tls);
    } catch (IllegalArgumentException error) {
      throw Credentials.invalid("a certificate or a key can't be used: " + error.getMessage(), error);
    }
  }

  /** A deadline, and whose call it is. */
  private final class EachCall implements ClientInterceptor {
    @Override
    public <Q, A> ClientCall<Q, A> interceptCall(MethodDescriptor<Q, A> method, CallOptions options, Channel next) {
      CallOptions timed = options.withDeadlineAfter(CALL_S, TimeUnit.SECONDS);
      return new ForwardingClientCall.SimpleForwardingClientCall<>(next.newCall(method, timed)) {
        @Override
        public void start(Listener<A> listener, Metadata headers) {
          if (!address.user().isEmpty()) {
            String user = URLEncoder.encode(address.user(), StandardCharsets.UTF_8).replace("+", "%20");
            headers.put(PRINCIPAL, user);
          }
          headers.put(FEATURES, READ);
          String token = tokens.current();
          if (token != null) headers.put(AUTHORIZATION, "Bearer " + token);
          super.start(listener, headers);
        }
      };
    }
  }
}
