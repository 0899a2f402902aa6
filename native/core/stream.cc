#include "core/stream.h"

#include "core/scratch.h"
#include "core/thread_name.h"

namespace edgewise {

class Stream::HostContext : public Context {
 public:
  explicit HostContext(ThreadPool& pool) : pool_(pool) {}
  void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int)>& fn) override {
    pool_.parallel_for(n, grain, fn);
  }
  int workers() const override { return pool_.workers(); }
  void* scratch(size_t bytes) override { return scratch_.take(bytes); }
  void begin_step() { scratch_.reset(); }

 private:
  ThreadPool& pool_;
  Scratch scratch_;
};

Stream::Stream(int threads) : pool_(threads), thread_([this] { thread_main(); }) {}

Stream::~Stream() {
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  work_.notify_one();
  thread_.join();
}

void Stream::enqueue(Step step) { push(std::move(step), nullptr); }
void Stream::enqueue(std::shared_ptr<const Steps> steps) { push({}, std::move(steps)); }
uint64_t Stream::record() { return push({}, nullptr); }

uint64_t Stream::push(Step step, std::shared_ptr<const Steps> graph) {
  uint64_t seq;
  {
    std::lock_guard lock(mutex_);
    seq = ++enqueued_;
    queue_.push_back({seq, std::move(step), std::move(graph)});
    pending_.store(true, std::memory_order_release);
  }
  work_.notify_one();
  return seq;
}

void Stream::wait(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  if (ticket > enqueued_) throw std::runtime_error("wait: no such ticket " + std::to_string(ticket));
  wanted_.store(ticket);
  done_.wait(lock, [&] { return completed_.load() >= ticket; });
  wanted_.store(UINT64_MAX);
  std::lock_guard failure_lock(failure_mutex_);
  if (!failure_ || ticket < failure_->begin || ticket > failure_->end) return;
  if (failure_->end == UINT64_MAX) failure_->end = enqueued_;
  throw std::runtime_error(failure_->what);
}

void Stream::thread_main() {
  name_this_thread("edgewise-stream");
  HostContext context(pool_);
  std::deque<Command> batch;
  while (take(batch)) {
    for (; !batch.empty() && !stop_.load(std::memory_order_relaxed); batch.pop_front()) {
      execute(batch.front(), context);
      completed_.store(batch.front().seq);
      if (wanted_.load() <= batch.front().seq) {
        std::lock_guard lock(mutex_);
        done_.notify_all();
      }
    }
  }
}

// Waits for commands and takes all of them; false when the stream stops.
bool Stream::take(std::deque<Command>& batch) {
  Backoff backoff;
  while (!pending_.load(std::memory_order_acquire) && !stop_.load(std::memory_order_relaxed) && backoff.spin()) {
  }
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] { return stop_.load() || !queue_.empty(); });
  if (stop_.load()) return false;
  batch.swap(queue_);
  pending_.store(false, std::memory_order_relaxed);
  return true;
}

void Stream::execute(Command& command, HostContext& context) {
  if (skipped(command.seq)) return;
  const char* op = "stream";
  const auto run = [&](const Step& step) {
    op = step.op;
    context.begin_step();
    step.run(context);
  };
  try {
    if (command.graph)
      for (const Step& step : *command.graph) run(step);
    else if (command.step.run)
      run(command.step);
  } catch (const std::exception& e) {
    std::lock_guard lock(failure_mutex_);
    failure_ = std::make_unique<Failure>(Failure{command.seq, UINT64_MAX, std::string(op) + ": " + e.what()});
    poisoned_.store(true);
  }
}

bool Stream::skipped(uint64_t seq) {
  if (!poisoned_.load(std::memory_order_relaxed)) return false;
  std::lock_guard lock(failure_mutex_);
  if (seq <= failure_->end) return true;
  poisoned_.store(false);
  return false;
}

}  // namespace edgewise
