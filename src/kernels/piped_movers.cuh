#pragma once

#include "kernels/piped.cuh"

/// The warps of a piped kernel that move chunks without changing them (piped.cuh).
namespace strait::kernels {

template <class Schedule, class Memory>
class Sender : Worker<Schedule, Memory> {
  using Base = Worker<Schedule, Memory>;
  using Base::memory_, Base::schedule_, Base::thread_;

 public:
  using Base::Base;
  __device__ void run() {
    Pipe pipe(memory_.sender, true, schedule_.yields(), this->is_crowded());
    for (std::uint32_t iteration = 0; iteration < schedule_.iterations(); ++iteration)
      if (!send(pipe, iteration)) break;
    if (thread_ == 0) pipe.flush();
  }

 private:
  template <class P>
  __device__ bool send(P& pipe, std::uint32_t iteration) {
    std::uint32_t* const walk = this->walk(Walker::sender);
    const auto is_ready = [&](std::uint32_t i, const Stream& stream) {
      const Part part = schedule_.contribution_to(stream.peer, stream.lane, iteration);
      const std::uint64_t use = stream.sent + walk[i];
      memory_.sent[i] = {part.data, this->out_slot(stream, use), part.bytes};
      return part.bytes == 0 || this->is_free(stream, use);
    };
    const auto are_peers_late = [&] { return this->has_fetched(iteration) && this->has_received(iteration); };
    for (std::uint32_t begin = 0, end; begin < this->streams_; begin = end) {
      end = this->await(begin, 1, true, is_ready, are_peers_late, [&] { pipe.flush(); });
      if (end == begin) return false;
      if (thread_ == 0) this->carry(pipe, memory_.sent, begin, end, iteration);
      __syncwarp();
    }
    this->for_streams([&](std::uint32_t i, const Stream& stream) { walk[i] += this->uses_out(stream, iteration); });
    return true;
  }
};

template <class Schedule, class Memory>
class Receiver : Worker<Schedule, Memory> {
  using Base = Worker<Schedule, Memory>;
  using Base::memory_, Base::schedule_, Base::thread_;

 public:
  using Base::Base;
  __device__ void run() {
    Pipe pipe(memory_.receiver, false, false, false);
    for (std::uint32_t iteration = 0; iteration < schedule_.iterations(); ++iteration)
      if (!receive(pipe, iteration)) break;
    if (thread_ == 0) pipe.flush();
  }

 private:
  template <class P>
  __device__ bool receive(P& pipe, std::uint32_t iteration) {
    std::uint32_t* const walk = this->walk(Walker::receiver);
    const bool must_wait = schedule_.overwrites_input();
    const auto is_ready = [&](std::uint32_t i, const Stream& stream) {
      const Part part = schedule_.result_from(stream.peer, stream.lane, iteration);
      const std::uint64_t use = stream.taken + walk[i] + (this->takes(stream, iteration) ? 1 : 0);
      memory_.received[i] = {this->in_slot(stream, use), part.data, part.bytes};
      return part.bytes == 0 || (this->has_come(stream, use) &&
                                 (!must_wait || load_progress(memory_.sender.loaded) > this->task_of(i, iteration)));
    };
    const auto are_peers_late = [&] { return this->has_sent(iteration + 1) && this->has_fetched(iteration + 1); };
    for (std::uint32_t begin = 0, end; begin < this->streams_; begin = end) {
      end = this->await(begin, 1, false, is_ready, are_peers_late, [&] { pipe.pass_all(); });
      if (end == begin) return false;
      if (thread_ == 0) {
        fence_async_global();
        this->carry(pipe, memory_.received, begin, end, iteration);
      }
      __syncwarp();
    }
    this->for_streams([&](std::uint32_t i, const Stream& stream) { walk[i] += this->uses_in(stream, iteration); });
    return true;
  }
};

/// Tells peers what has arrived in their slots, with one fence for everything that is due.
template <class Schedule, class Memory>
class FlagPublisher : Worker<Schedule, Memory> {
  using Base = Worker<Schedule, Memory>;
  using Base::memory_, Base::schedule_;

 public:
  using Base::Base;
  __device__ void run() {
    for (;;) {
      sent_ = load_progress(memory_.sender.written);
      stored_ = load_progress(memory_.sets.written);
      bool due = false, left = false;
      this->for_streams([&](std::uint32_t i, const Stream&) {
        due |= may_publish_contribution(i) || may_publish_result(i);
        left |= this->is_left(Walker::contributed, i) || this->is_left(Walker::results, i);
      });
      if (this->all(!left)) return;
      if (this->all(!due)) {
        if (!this->all(!this->has_failed())) return;
        pause();
        continue;
      }
      __threadfence_system();
      this->for_streams([&](std::uint32_t i, const Stream& stream) {
        while (may_publish_contribution(i)) publish_contribution(i, stream);
        while (may_publish_result(i)) publish_result(i, stream);
      });
    }
  }

 private:
  __device__ bool may_publish_contribution(std::uint32_t i) {
    return this->is_left(Walker::contributed, i) &&
           this->task_of(i, this->iteration_of(Walker::contributed, i)) < sent_;
  }
  __device__ bool may_publish_result(std::uint32_t i) {
    const std::uint32_t iteration = this->iteration_of(Walker::results, i);
    return this->is_left(Walker::results, i) && (iteration == 0 || this->is_through(stored_, i, iteration - 1));
  }
  __device__ void publish_contribution(std::uint32_t i, const Stream& stream) {
    const std::uint32_t iteration = this->iteration_of(Walker::contributed, i)++;
    std::uint32_t& walked = this->walk(Walker::contributed)[i];
    if (this->contributes(stream, iteration)) publish(stream, stream.sent + walked);
    walked += this->uses_out(stream, iteration);
  }
  __device__ void publish_result(std::uint32_t i, const Stream& stream) {
    const std::uint32_t iteration = this->iteration_of(Walker::results, i)++;
    std::uint32_t& walked = this->walk(Walker::results)[i];
    if (this->results(stream, iteration))
      publish(stream, stream.sent + walked + (this->contributes(stream, iteration) ? 1 : 0));
    walked += this->uses_out(stream, iteration);
  }
  static __device__ void publish(const Stream& stream, std::uint64_t use) {
    store_word(stream.out_flags + use % slot_depth, Bulk::flag(use, stream.hash_to));
  }
  /// Progress of the other warps when this one last looked.
  std::uint32_t sent_ = 0, stored_ = 0;
};

/// Returns slots to peers. Their contents have been read by then, and no later write can change what a read has
/// returned. So this needs no fence, which under load would wait for everything that the SM is sending.
template <class Schedule, class Memory>
class Returner : Worker<Schedule, Memory> {
  using Base = Worker<Schedule, Memory>;
  using Base::memory_;

 public:
  using Base::Base;
  __device__ void run() {
    for (;;) {
      fetched_ = load_progress(memory_.sets.fetched);
      received_ = load_progress(memory_.receiver.loaded);
      bool due = false, left = false;
      this->for_streams([&](std::uint32_t i, Stream& stream) {
        due |= may_give_back(i);
        give_back(i, stream);
        left |= this->is_left(Walker::returns, i);
      });
      if (this->all(!left)) return;
      if (!this->all(!due)) continue;
      if (!this->all(!this->has_failed())) return;
      pause();
    }
  }

 private:
  __device__ bool may_give_back(std::uint32_t i) {
    const std::uint32_t iteration = this->iteration_of(Walker::returns, i);
    return this->is_left(Walker::returns, i) && this->is_through(fetched_, i, iteration) &&
           this->task_of(i, iteration) < received_;
  }
  /// The slots of the last iteration are returned by the next launch (see Lane::give_back()).
  __device__ void give_back(std::uint32_t i, Stream& stream) {
    std::uint32_t& walked = this->walk(Walker::returns)[i];
    while (may_give_back(i)) walked += this->uses_in(stream, this->iteration_of(Walker::returns, i)++);
    const std::uint64_t taken = stream.taken + walked;
    if (!this->is_left(Walker::returns, i) || taken == stream.returned_by_us) return;
    stream.returned_by_us = taken;
    store_word(stream.peers_returned, taken);
  }
  /// Progress of the other warps when this one last looked.
  std::uint32_t fetched_ = 0, received_ = 0;
};

}  // namespace strait::kernels
