package attack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"atoll.dev/atoll/internal/tunnel"
)

// viewAttacks answer as a member what people read on the hub.
var viewAttacks = []Attack{
	{Name: "watch-flood", Caller: Agent, Summary: "send pod events of 1 MB as fast as they are taken to a reader that reads nothing", run: answerWatchesWithPodFlood},
	{Name: "huge-answers", Caller: Agent, Summary: "answer reads, deletes, evictions and logs of pods without an end", run: serveEndlessResponses},
	{Name: "foreign-template", Caller: Agent, Summary: "answer for a Pod that is not placed in the cluster", run: answerWithForeignPod},
}

// serveMember opens a session whose tunnels the handler serves, as a member's API.
func (t *Target) serveMember(ctx context.Context, h http.Handler) (*agentClient, error) {
	if err := t.placeWorkloadOnAttacker(ctx); err != nil {
		return nil, err
	}
	tunnels := tunnel.NewListener("the hub")
	a, err := t.connectTunnelAgent(ctx, tunnels)
	if err != nil {
		return nil, err
	}
	go func() { _ = http.Serve(tunnels, h) }() // it ends with the session
	if err := a.sendFrame(inventoryFrame(honestInventory())); err != nil {
		a.closeSession()
		return nil, err
	}
	if _, err := a.waitForOrder(ctx); err != nil {
		a.closeSession()
		return nil, err
	}
	return a, nil
}

// protobufInfo is the serializer of the answers that the hub requests.
func protobufInfo() runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(clientscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return info
}

// writePods answers a request for pods: a list, or a watch that never rests.
func writePods(w http.ResponseWriter, r *http.Request, item *corev1.Pod) {
	encoder := clientscheme.Codecs.EncoderForVersion(protobufInfo().Serializer, corev1.SchemeGroupVersion)
	if r.URL.Query().Get("watch") == "" {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*item}}
		_ = encoder.Encode(list, w) // the hub has what it wanted
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	stream := protobufInfo().StreamSerializer
	frames := streaming.NewEncoder(stream.Framer.NewFrameWriter(w), clientscheme.Codecs.EncoderForVersion(stream.Serializer, corev1.SchemeGroupVersion))
	events := restwatch.NewEncoder(frames, encoder)
	for i := 0; ; i++ {
		pod := item.DeepCopy()
		pod.Name, pod.ResourceVersion = fmt.Sprint("p", i), fmt.Sprint(i+2)
		if events.Encode(&watch.Event{Type: watch.Added, Object: pod}) != nil {
			return
		}
	}
}

func (t *Target) bigPod(size int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "p", Namespace: t.name, UID: "u", ResourceVersion: "1", Annotations: map[string]string{"a": strings.Repeat("x", size)},
	}}
}

func answerWatchesWithPodFlood(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	var sent atomic.Int64
	a, err := t.serveMember(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writePods(&countingWriter{ResponseWriter: w, n: &sent}, r, t.bigPod(1<<20))
	}))
	if err != nil {
		return "", err
	}
	defer a.closeSession()
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var running sync.WaitGroup
	for range 16 {
		running.Go(func() {
			body, err := t.kube.CoreV1().RESTClient().Get().Namespace(t.name).Resource("pods").Param("watch", "true").Stream(ctx)
			if err != nil {
				return // refused, as it may be
			}
			defer body.Close()
			<-ctx.Done()
		})
	}
	running.Wait()
	return fmt.Sprintf("%d MiB sent to 16 readers that read nothing", sent.Load()>>20), nil
}

// countingWriter counts what a handler writes.
type countingWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.n.Add(int64(n))
	return n, err
}

// readTimeout bounds a request of a person to the attacker's member.
const readTimeout = 5 * time.Second

func serveEndlessResponses(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	var sent atomic.Int64
	piece := make([]byte, 64<<10)
	a, err := t.serveMember(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		w = &countingWriter{ResponseWriter: w, n: &sent}
		_, _ = w.Write([]byte("k8s\x00"))
		for {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	if err != nil {
		return "", err
	}
	defer a.closeSession()
	_, cluster, err := t.ensureAgentIdentity(ctx)
	if err != nil {
		return "", err
	}
	pod := "p." + cluster
	pods := t.kube.CoreV1().Pods(t.name)
	answer := repeatCalls(ctx, lasts, 16, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		_, list := pods.List(ctx, metav1.ListOptions{})
		_, get := pods.Get(ctx, pod, metav1.GetOptions{})
		_, patch := pods.Patch(ctx, pod, "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
		return errors.Join(list, get, patch, pods.Delete(ctx, pod, metav1.DeleteOptions{}))
	})
	return fmt.Sprintf("%d MiB sent in answers; %s", sent.Load()>>20, answer), nil
}

// victim is a Pod that is not placed in the attacker's Cluster.
const victim = "victim"

func answerWithForeignPod(ctx context.Context, t *Target, lasts time.Duration) (string, error) {
	var mu sync.Mutex
	asked := map[string]int{}
	a, err := t.serveMember(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, victim) {
			mu.Lock()
			asked[r.Method+" "+r.URL.Path]++
			mu.Unlock()
		}
		pod := t.bigPod(1)
		pod.Name = victim
		writePods(w, r, pod)
	}))
	if err != nil {
		return "", err
	}
	defer a.closeSession()
	template := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"victim","namespace":"$NAME"},"spec":{"containers":[{"name":"c","image":"example.com/victim:1"}]}}`
	if err := t.applyObject(ctx, podResource, template); err != nil {
		return "", err
	}
	answer := repeatCalls(ctx, lasts, 2, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		rest := t.kube.CoreV1().RESTClient()
		return errors.Join(
			rest.Get().Namespace(t.name).Resource("pods").Name(victim).SubResource("log").Do(ctx).Error(),
			rest.Post().Namespace(t.name).Resource("pods").Name(victim).SubResource("exec").Param("command", "id").Param("stdout", "true").Do(ctx).Error(),
			rest.Get().Namespace(t.name).Resource("pods").Name(victim).SubResource("proxy").Do(ctx).Error(),
		)
	})
	mu.Lock()
	defer mu.Unlock()
	if len(asked) > 0 {
		return answer.String(), fmt.Errorf("the attacker's cluster got a request for a Pod that is not placed in it: %v", sortedKeys(asked))
	}
	return "the attacker's cluster got no request; " + answer.String(), nil
}
