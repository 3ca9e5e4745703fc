package attack

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/atoll"
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
	quiet := rest.CopyConfig(t.config)
	quiet.WarningHandler = rest.NoWarnings{}
	return kubernetes.NewForConfigAndClient(quiet, &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}})
}

// startObserver begins to send an administrator's requests: in turn a list, a write, an explanation and a
// list of pods of clusters. Each is followed by a reading of the metrics.
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
		for i := 0; ; i++ {
			if err := o.observeOnce(ctx, i); err != nil && ctx.Err() == nil {
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

// observed is the ConfigMap that the observer writes.
const observed = attacker + "-observer"

// requestOf returns the request of a turn, and its name.
func (o *observer) requestOf(turn int) (name string, send func(context.Context) error) {
	maps, rest := o.kube.CoreV1().ConfigMaps(metav1.NamespaceDefault), o.kube.CoreV1().RESTClient()
	switch turn % 4 {
	case 0:
		return "list namespaces", func(ctx context.Context) error {
			_, err := o.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 10})
			return err
		}
	case 1:
		return "apply a ConfigMap", func(ctx context.Context) error {
			c := applycorev1.ConfigMap(observed, metav1.NamespaceDefault).WithData(map[string]string{"turn": strconv.Itoa(turn)})
			_, err := maps.Apply(ctx, c, metav1.ApplyOptions{FieldManager: observed, Force: true})
			return err
		}
	case 2:
		return "explain the ConfigMap", func(ctx context.Context) error {
			return rest.Get().AbsPath(atoll.ExplainPath).Param("kind", "ConfigMap").Param("namespace", metav1.NamespaceDefault).Param("name", observed).Do(ctx).Error()
		}
	}
	return "list pods", func(ctx context.Context) error {
		_, err := o.kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{Limit: 10})
		return err
	}
}

func (o *observer) observeOnce(ctx context.Context, turn int) error {
	ctx, cancel := context.WithTimeout(ctx, observeTimeout)
	defer cancel()
	name, send := o.requestOf(turn)
	begin := time.Now()
	if err := send(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
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
