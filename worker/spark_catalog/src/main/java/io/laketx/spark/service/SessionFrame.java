package io.laketx.spark.service;

import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import io.laketx.v1.RegisterFilesRequest;
import io.laketx.v1.RegisterFilesResponse;
import io.laketx.v1.SessionCall;
import io.laketx.v1.SessionReply;
import io.laketx.v1.SessionRequest;
import io.laketx.v1.SessionResponse;
import io.laketx.v1.TransactionServiceGrpc;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Consumer;

/** Calls of a transaction that the service decides in their order, sent as one frame of a session. */
public final class SessionFrame {
  private static final Set<Status.Code> REFUSED = Set.of(Status.Code.RESOURCE_EXHAUSTED, Status.Code.UNIMPLEMENTED);

  private SessionFrame() {}

  /**
   * The answer to the last call; `answered` learns of each that was answered. A repeated frame may be refused its first
   * calls, as those of a transaction that has ended, and still learn how it ended.
   */
  public static SessionReply send(Service.Stubs stubs, List<SessionCall> calls, Consumer<SessionReply> answered) {
    List<SessionReply> replies = replies(stubs, calls);
    LakeException first = null;
    for (SessionReply one : replies) {
      if (!one.hasError()) answered.accept(one);
      else if (first == null) first = Refusals.of(one.getError());
    }
    SessionReply last = replies.get(replies.size() - 1);
    if (last.hasError()) throw first;
    return last;
  }

  private static List<SessionReply> replies(Service.Stubs stubs, List<SessionCall> calls) {
    try {
      return inOneFrame(stubs, calls);
    } catch (StatusRuntimeException error) {
      if (!REFUSED.contains(error.getStatus().getCode())) throw error;
      List<SessionReply> replies = new ArrayList<>(); // a service without a thread for one more session
      for (SessionCall one : calls) replies.add(alone(stubs, one));
      return replies;
    }
  }

  private static List<SessionReply> inOneFrame(Service.Stubs stubs, List<SessionCall> calls) {
    Map<Long, SessionReply> replies = new TreeMap<>();
    CompletableFuture<List<SessionReply>> all = new CompletableFuture<>();
    StreamObserver<SessionRequest> out =
        TransactionServiceGrpc.newStub(stubs.transactions().getChannel())
            .session(
                new Answer<SessionResponse, List<SessionReply>>(all) {
                  @Override
                  public void onNext(SessionResponse response) {
                    for (SessionReply one : response.getRepliesList()) replies.put(one.getCallId(), one);
                    if (replies.size() == calls.size()) all.complete(List.copyOf(replies.values()));
                  }
                });
    SessionRequest.Builder frame = SessionRequest.newBuilder();
    for (SessionCall one : calls) frame.addCalls(one.toBuilder().setCallId(frame.getCallsCount() + 1));
    out.onNext(frame.build());
    if (!all.isDone()) out.onCompleted();
    return joined(all);
  }

  private static SessionReply alone(Service.Stubs stubs, SessionCall call) {
    SessionReply.Builder reply = SessionReply.newBuilder();
    try {
      switch (call.getCallCase()) {
        case BEGIN -> reply.setBegin(stubs.transactions().beginTransaction(call.getBegin()));
        case REGISTER -> reply.setRegister(register(stubs, List.of(call.getRegister())));
        case COMMIT -> reply.setCommit(stubs.transactions().commitTransaction(call.getCommit()));
        default -> throw new IllegalStateException("no call of a frame: " + call.getCallCase());
      }
    } catch (StatusRuntimeException error) {
      com.google.rpc.Status refusal = Refusals.statusOf(error);
      if (refusal == null) throw error; // whether it arrived is not known
      reply.setError(refusal);
    }
    return reply.build();
  }

  /** Registers files, in any number of messages. */
  public static RegisterFilesResponse register(Service.Stubs stubs, List<RegisterFilesRequest> messages) {
    CompletableFuture<RegisterFilesResponse> answer = new CompletableFuture<>();
    StreamObserver<RegisterFilesRequest> out =
        TransactionServiceGrpc.newStub(stubs.transactions().getChannel())
            .registerFiles(
                new Answer<RegisterFilesResponse, RegisterFilesResponse>(answer) {
                  @Override
                  public void onNext(RegisterFilesResponse response) {
                    answer.complete(response);
                  }
                });
    for (RegisterFilesRequest one : messages) {
      if (answer.isDone()) break;
      out.onNext(one);
    }
    if (!answer.isDone()) out.onCompleted();
    return joined(answer);
  }

  /** What a stream answers, until it has all of it. */
  private abstract static class Answer<T, A> implements StreamObserver<T> {
    private final CompletableFuture<A> whole;

    Answer(CompletableFuture<A> whole) {
      this.whole = whole;
    }

    @Override
    public void onError(Throwable error) {
      whole.completeExceptionally(error);
    }

    @Override
    public void onCompleted() {
      String said = "the service ended a stream without an answer";
      whole.completeExceptionally(Status.UNAVAILABLE.withDescription(said).asRuntimeException());
    }
  }

  private static <T> T joined(CompletableFuture<T> answer) {
    try {
      return answer.join();
    } catch (CompletionException error) {
      if (error.getCause() instanceof StatusRuntimeException status) throw status;
      throw error;
    }
  }
}
