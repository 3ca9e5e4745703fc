// Package commitreport sends the states of Sources to git servers, as statuses of commits.
//
// Contract: a Reporter runs on the leading hub. It sends a report when the commit or the state of a Source has changed since the last one that
// the server took, which the status of the Source has. Sources whose last report was not taken are reported by workers of their own, and those of
// one namespace have a part of the workers.
// The token is sent to the host of the API alone, over TLS. No text of a server is kept.
package commitreport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/addressguard"
	"atoll.dev/atoll/internal/reconcile"
	"atoll.dev/atoll/internal/sources/commitstatus"
)

const (
	// debounce joins the changes of a Source to one report, and maxDebounce is the longest wait.
	debounce, maxDebounce = 2 * time.Second, 10 * time.Second
	// healthyWorkers and failingWorkers send at the same time: for Sources whose last report was taken, and for the others.
	healthyWorkers, failingWorkers = 4, 2
	// namespaceReports is how many reports of one namespace are sent at the same time, and namespacePause the wait of one more.
	namespaceReports, namespacePause = 2, time.Second
	// connectTimeout and answerTimeout bound a request.
	connectTimeout, answerTimeout = 10 * time.Second, 15 * time.Second
	// maxAnswerBytes of an answer are read, so that the connection can be closed in order.
	maxAnswerBytes = 64 << 10
	// firstRetry is the wait after a report that failed. It doubles up to maxRetry.
	firstRetry, maxRetry = 30 * time.Second, 10 * time.Minute
)

// Sources finds Sources.
type Sources interface {
	Get(key types.NamespacedName) (*v1alpha1.Source, bool)
	InNamespace(namespace string) []*v1alpha1.Source
}

// Repositories finds Repositories.
type Repositories interface {
	Get(key types.NamespacedName) (*v1alpha1.Repository, bool)
}

// Config of a Reporter. All but Log must be set.
type Config struct {
	Sources      Sources
	Repositories Repositories
	// Secrets reads the tokens.
	Secrets client.Reader
	// AllowedNetworks are networks in CIDR notation that Repositories may name although they are refused otherwise.
	AllowedNetworks []string
	// Update changes the status of a Source, and writes it when it has changed.
	Update func(ctx context.Context, s *v1alpha1.Source, change func(now *v1alpha1.Source)) error
	// Log; nil: slog's default.
	Log *slog.Logger
}

// Reporter reports to git servers. Make it with New.
type Reporter struct {
	Config
	// healthy and failing report Sources, which are in one of them at a time.
	healthy, failing *reconcile.Loop[types.NamespacedName]

	mu sync.Mutex
	// failures are of Sources whose last report was not taken.
	failures map[types.NamespacedName]failedReport
	// sending counts the reports that are being sent, by namespace.
	sending map[string]int
}

// failedReport is a report that a server did not take.
type failedReport struct {
	report commitstatus.Report
	// generation is that of the Repository.
	generation int64
	// inARow are the tries, and notBefore is the time of the next one.
	inARow    int
	notBefore time.Time
}

// New makes a Reporter.
func New(cfg Config) *Reporter {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	r := &Reporter{Config: cfg, failures: map[types.NamespacedName]failedReport{}, sending: map[string]int{}}
	lane := func(name string, workers int) *reconcile.Loop[types.NamespacedName] {
		return reconcile.New(reconcile.Options[types.NamespacedName]{
			Name: name, Workers: workers, Debounce: debounce, MaxDebounce: maxDebounce,
			Backoff:   workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](time.Second, maxRetry),
			Reconcile: r.reportSource,
			Failed: func(key types.NamespacedName, err error) {
				cfg.Log.Warn("the status of a commit could not be recorded, trying again", "namespace", key.Namespace, "name", key.Name, "err", err)
			},
		})
	}
	r.healthy, r.failing = lane("commit-statuses", healthyWorkers), lane("failing-commit-statuses", failingWorkers)
	return r
}

// Run reports until ctx ends. It looks at each Source first.
func (r *Reporter) Run(ctx context.Context) {
	var group sync.WaitGroup
	r.failing.AcceptKeys()
	group.Go(func() { r.failing.Run(ctx, nil) })
	r.healthy.Run(ctx, func() {
		for _, s := range r.Sources.InNamespace("") {
			r.healthy.EnqueueRecheck(client.ObjectKeyFromObject(s), debounce)
		}
	})
	group.Wait()
}

// SourceChanged reports a Source soon, if its commit or its state has changed. A Source that is gone is dropped.
func (r *Reporter) SourceChanged(key types.NamespacedName) { r.laneOf(key).EnqueueDebounced(key) }

// laneOf returns the loop that reports a Source.
func (r *Reporter) laneOf(key types.NamespacedName) *reconcile.Loop[types.NamespacedName] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures[key].inARow > 0 {
		return r.failing
	}
	return r.healthy
}

// reportSource sends a report that the server does not have yet.
func (r *Reporter) reportSource(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	s, repo := r.findReported(key)
	switch {
	case repo == nil:
		r.dropFailure(key)
		return 0, nil
	case repo.Spec.CommitStatus == nil:
		r.dropFailure(key)
		if s.Status.CommitStatus == nil {
			return 0, nil
		}
		return 0, r.Update(ctx, s, func(now *v1alpha1.Source) { now.Status.CommitStatus = nil })
	}
	report, ok := commitstatus.DesiredReport(s)
	if !ok || !commitstatus.IsNews(s.Status.CommitStatus, report) {
		return 0, nil
	}
	if wait := r.beginReport(key, report, repo.Generation); wait > 0 {
		return wait, nil
	}
	err := r.sendReport(ctx, repo, s, report)
	wait := r.endReport(key, report, repo.Generation, err != nil)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err != nil {
		r.failing.EnqueueAfter(key, wait)
	}
	return 0, r.Update(ctx, s, func(now *v1alpha1.Source) { recordReport(now, report, err) })
}

// findReported returns a Source and its Repository; no Repository for a Source of which nothing is reported now.
func (r *Reporter) findReported(key types.NamespacedName) (*v1alpha1.Source, *v1alpha1.Repository) {
	s, ok := r.Sources.Get(key)
	if !ok {
		return nil, nil
	}
	repo, ok := r.Repositories.Get(types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.Repository})
	if !ok || repo.Spec.Suspend {
		return s, nil
	}
	return s, repo
}

// beginReport begins a report, or returns how long it must wait: until the next try of a report that failed, or for other ones of its namespace.
func (r *Reporter) beginReport(key types.NamespacedName, report commitstatus.Report, generation int64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.failures[key]
	if wait := time.Until(f.notBefore); wait > 0 && f.report == report && f.generation == generation {
		return wait
	}
	if r.sending[key.Namespace] >= namespaceReports {
		return namespacePause
	}
	r.sending[key.Namespace]++
	return 0
}

// endReport ends a report, and returns the wait before the next try of one that failed.
func (r *Reporter) endReport(key types.NamespacedName, report commitstatus.Report, generation int64, failed bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sending[key.Namespace]--; r.sending[key.Namespace] == 0 {
		delete(r.sending, key.Namespace)
	}
	if !failed {
		delete(r.failures, key)
		return 0
	}
	f := failedReport{report: report, generation: generation, inARow: r.failures[key].inARow + 1}
	wait := retryAfter(f.inARow)
	f.notBefore = time.Now().Add(wait)
	r.failures[key] = f
	return wait
}

// retryAfter returns the wait after a number of tries in a row that failed.
func retryAfter(inARow int) time.Duration { return min(maxRetry, firstRetry<<min(inARow-1, 10)) }

// dropFailure drops what is known of a Source that is not reported.
func (r *Reporter) dropFailure(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failures, key)
}

// recordReport records what the server took, or why it did not.
func recordReport(now *v1alpha1.Source, report commitstatus.Report, err error) {
	st := now.Status.CommitStatus
	if st == nil {
		st = &v1alpha1.SourceCommitStatus{}
	}
	if err == nil {
		at := metav1.Now()
		now.Status.CommitStatus = &v1alpha1.SourceCommitStatus{Commit: report.Commit, State: report.State, Time: &at}
		return
	}
	if problem := describeProblem(err); problem != st.Problem {
		at := metav1.Now()
		st.Problem, st.ProblemSince = problem, &at
	}
	now.Status.CommitStatus = st
}

// problem is a text for people that no server wrote.
type problem string

// Error returns the text.
func (p problem) Error() string { return string(p) }

// sendReport sends a report.
func (r *Reporter) sendReport(ctx context.Context, repo *v1alpha1.Repository, s *v1alpha1.Source, report commitstatus.Report) error {
	token, err := r.readToken(ctx, repo)
	if err != nil {
		return err
	}
	message, err := commitstatus.NewMessage(&repo.Spec, report, "atoll/"+s.Namespace+"/"+s.Name, token)
	if err != nil {
		return problem(err.Error())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, message.URL, bytes.NewReader(message.Body))
	if err != nil {
		return problem("the URL of the API is no URL")
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "atoll-hub", message.Header: message.Value} {
		req.Header.Set(name, value)
	}
	sender, err := addressguard.NewClient(req.URL, addressguard.ClientOptions{
		AllowedNetworks: r.AllowedNetworks, Bundle: []byte(repo.Spec.Git.CABundle), ConnectTimeout: connectTimeout, Timeout: answerTimeout,
	})
	if err != nil {
		return err
	}
	defer sender.CloseIdleConnections()
	answer, err := sender.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, maxAnswerBytes))
	if why := commitstatus.JudgeAnswer(answer.StatusCode); why != "" {
		return problem(why)
	}
	return nil
}

// readToken reads the token of a Repository.
func (r *Reporter) readToken(ctx context.Context, repo *v1alpha1.Repository) (string, error) {
	name := repo.Spec.CommitStatus.SecretRef.Name
	var secret corev1.Secret
	err := r.Secrets.Get(ctx, client.ObjectKey{Namespace: repo.Namespace, Name: name}, &secret)
	if apierrors.IsNotFound(err) {
		return "", problem("the Secret " + name + " does not exist")
	}
	if err != nil {
		return "", problem("the hub cannot read the Secret " + name)
	}
	token := strings.TrimSpace(string(secret.Data["token"]))
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c < '!' || c > '~' }) {
		return "", problem("the Secret " + name + " has no key token with a token")
	}
	return token, nil
}

// describeProblem returns why a report failed. No text that a server wrote is in it.
func describeProblem(err error) string {
	if known := problem(""); errors.As(err, &known) {
		return string(known)
	}
	return addressguard.DescribeRequestError(err, "--source-allowed-cidrs", "caBundle of the Repository")
}
