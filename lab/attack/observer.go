package attack

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/lab/bench/measure"
)

const (
	// observeEvery is the time between two requests of the administrator.
	observeEvery = 100 * time.Millisecond
	// observeTimeout ends a request that the hub does not answer; it counts as failed.
	observeTimeout = 10 * time.Second
)

// observer measures the hub while it is attacked.
type observer struct {
	kube      kubernetes.Interface
	cancel    context.CancelFunc
	running   sync.WaitGroup
	latencies measure.Distribution
	peak      float64
	failed    error
}

// newAdminClient returns a client with a connection of its own: attacks fill theirs.
func (t *Target) newAdminClient() (kubernetes.Interface, error) {
	config, err := rest.TLSConfigFor(t.config)
	if err != nil {
		return nil, fmt.Errorf("TLS of an administrator: %w", err)
	}
	return kubernetes.NewForConfigAndClient(t.config, &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}})
}

// startObserver begins to send an administrator's requests: a list, and a reading of the metrics.
func (t *Target) startObserver(ctx context.Context) (*observer, error) {
	kube, err := t.newAdminClient()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{cancel: cancel, kube: kube}
	o.running.Go(func() {
		tick := time.NewTicker(observeEvery)
		defer tick.Stop()
		for {
			if err := o.observeOnce(ctx); err != nil && ctx.Err() == nil {
				o.failed = err
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
	return o, nil
}

func (o *observer) observeOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	begin := time.Now()
	if _, err := o.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 10}); err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	o.latencies.Add(time.Since(begin))
	resident, err := readHubResidentMemory(ctx, o.kube)
	o.peak = max(o.peak, resident)
	return err
}

// stopObserver ends the observer, and returns the sorted latencies in seconds, the most resident
// memory in bytes, and the error of a request that failed.
func (o *observer) stopObserver() (latencies []float64, peak float64, failed error) {
	o.cancel()
	o.running.Wait()
	return o.latencies.SortedValues(), o.peak, o.failed
}

// readHubResidentMemory returns the hub's resident memory in bytes, as its metrics report it.
func readHubResidentMemory(ctx context.Context, kube kubernetes.Interface) (float64, error) {
	metrics, err := measure.ReadMetrics(ctx, kube.CoreV1().RESTClient())
	if err != nil {
		return 0, err
	}
	return metrics.SumSeries("process_resident_memory_bytes"), nil
}
