// Compiled once, for any processor: which instruction set to use, and the threads.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <thread>

#include "parallel.h"
#include "problem.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT const char *posenc_best_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return avx2 && avx512 ? "avx512" : avx2 ? "avx2" : "baseline";
#else
  return "baseline";
#endif
}

// Sizes of the structures, for Python to compare with its own.
EXPORT int64_t posenc_size(int64_t which) {
  const int64_t sizes[] = {sizeof(Tensor), sizeof(Rotation), sizeof(Term), sizeof(Visibility), sizeof(Attention), sizeof(Rotary)};
  return which < (int64_t)(sizeof sizes / sizeof *sizes) ? sizes[which] : 0;
}

namespace {

struct Job {
  void (*body)(void *, int64_t);
  void *context;
  int64_t parts, next = 0, running = 0;  // guarded by the pool's mutex
  int64_t helpers;                       // how many threads may still join
  std::condition_variable finished;
};

// Threads wait for jobs and take parts of the first that has any left. They live as long as the process.
struct Pool {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Job *> jobs;
  int64_t threads = 0;

  // Runs parts until none is left to take; the mutex is held on entry and on return.
  void work(Job &job, std::unique_lock<std::mutex> &lock) {
    while (job.next < job.parts) {
      const int64_t part = job.next++;
      job.running++;
      lock.unlock();
      job.body(job.context, part);
      lock.lock();
      if (--job.running == 0 && job.next == job.parts) job.finished.notify_all();
    }
  }

  void serve() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      Job *job = nullptr;
      for (Job *candidate : jobs)
        if (candidate->helpers > 0 && candidate->next < candidate->parts) {
          job = candidate;
          break;
        }
      if (!job) {
        wake.wait(lock);
        continue;
      }
      job->helpers--;
      job->running++;  // so that the job outlives this thread's look at it
      work(*job, lock);
      if (--job->running == 0 && job->next == job->parts) job->finished.notify_all();
    }
  }

  void run(Job &job) {
    std::unique_lock<std::mutex> lock(mutex);
    for (; threads < job.helpers; threads++) {
      try {
        std::thread([this] { serve(); }).detach();
      } catch (...) {  // no thread to be had: those that are there do the work
        break;
      }
    }
    jobs.push_back(&job);
    job.helpers == 1 ? wake.notify_one() : wake.notify_all();
    work(job, lock);
    job.finished.wait(lock, [&] { return job.running == 0; });
    for (auto place = jobs.begin(); place != jobs.end(); ++place)
      if (*place == &job) {
        jobs.erase(place);
        break;
      }
  }
};

// Torch's own team, where it computes with OpenMP: its threads look out for work for a while after each operator, so that
// they are awake when attention comes, and would be in the way of ours. A forked child has none of its parent's threads,
// of either kind: it starts with a pool of its own, and leaves the old one where it lies.
typedef void (*Team)(void (*work)(void *), void *context, unsigned threads, unsigned flags);
Team team = nullptr;
Pool *pool = nullptr;
std::once_flag once;
void renew() { team = nullptr, pool = new Pool; }

struct Shared {
  std::atomic<int64_t> next{0};
  int64_t parts;
  void (*body)(void *, int64_t);
  void *context;
  static void work(void *given) {
    Shared &shared = *(Shared *)given;
    for (int64_t part; (part = shared.next++) < shared.parts;) shared.body(shared.context, part);
  }
};

__attribute__((constructor)) void find_team() {
  if (void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD)) team = (Team)dlsym(torch, "GOMP_parallel");
  pthread_atfork(nullptr, nullptr, renew);
}

}  // namespace

// For a library that a forked child is the first to load.
EXPORT void posenc_leave_team() { team = nullptr; }

void posenc_parallel(int64_t parts, int64_t threads, void (*body)(void *context, int64_t part), void *context) {
  threads = threads < parts ? threads : parts;
  if (threads <= 1) {
    for (int64_t part = 0; part < parts; part++) body(context, part);
    return;
  }
  if (team) {
    Shared shared{{}, parts, body, context};
    return team(Shared::work, &shared, (unsigned)threads, 0);
  }
  std::call_once(once, [] {
    if (!pool) renew();
  });
  Job job{body, context, parts};
  job.helpers = threads - 1;
  pool->run(job);
}
