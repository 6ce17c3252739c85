// Compiled once, for any processor: which instruction set to use, and the threads.
#include <condition_variable>
#include <deque>
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

// A forked child has none of its parent's threads: it starts with a new pool, and leaves the old one where it lies.
Pool *pool = nullptr;
std::once_flag once;
void renew() { pool = new Pool; }

}  // namespace

void posenc_parallel(int64_t parts, int64_t threads, void (*body)(void *context, int64_t part), void *context) {
  if (parts <= 1 || threads <= 1) {
    for (int64_t part = 0; part < parts; part++) body(context, part);
    return;
  }
  std::call_once(once, [] {
    renew();
    pthread_atfork(nullptr, nullptr, renew);
  });
  Job job{body, context, parts};
  job.helpers = (threads < parts ? threads : parts) - 1;
  pool->run(job);
}
