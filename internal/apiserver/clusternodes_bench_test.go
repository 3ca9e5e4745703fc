package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"atoll.dev/atoll/internal/apiserver"
)

const benchedNodes = 100_000

// manyClusters are put into the store as agents keep them there.
func manyClusters(b *testing.B, s *apiserver.Server) {
	b.Helper()
	const together = 100
	for at := 0; at < benchedNodes; at += together {
		var puts []clientv3.Op
		for i := at; i < at+together; i++ {
			name := fmt.Sprintf("edge-%06d", i)
			puts = append(puts, clientv3.OpPut("/registry/atoll.dev/clusters/"+name, fmt.Sprintf(`{"apiVersion":"atoll.dev/v1alpha1","kind":"Cluster","metadata":{"name":%q,
				"uid":"0d1f5a4e-0000-4000-8000-%012d","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"tier":"edge","shop":"%d"}},
				"spec":{"accepted":true,"connection":{"type":"Stream"},"region":"asia","zone":"a"},
				"status":{"kubernetesVersion":"v1.36.3","agentVersion":"v1","apisHash":"h","nodes":{"total":3,"ready":3,"summary":"3/3"},
				"resources":{"allocatable":{"cpu":"4","memory":"16Gi","pods":"110"}},
				"conditions":[{"type":"Accepted","status":"True","reason":"Accepted","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"},
				{"type":"Joined","status":"True","reason":"Joined","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"},
				{"type":"Ready","status":"True","reason":"AgentConnected","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`, name, i, i)))
		}
		if _, err := s.EtcdClient().Txn(b.Context()).Then(puts...).Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// measurePeak of the heap while something is done, above what it was before, in MB. All of it is in
// this process, etcd too.
func measurePeak(do func()) float64 {
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	now := func() uint64 { metrics.Read(heap); return heap[0].Value.Uint64() } // which stops nothing
	runtime.GC()
	before := now()
	most := before
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() {
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for ctx.Err() == nil {
			<-every.C
			most = max(most, now())
		}
	})
	do()
	cancel()
	looking.Wait()
	return float64(most-before) / 1e6
}

// BenchmarkNodes of 100,000 clusters: as `kubectl get nodes` reads them, as a program that
// bounds nothing does, and as a watch is resumed.
func BenchmarkNodes(b *testing.B) {
	s, err := apiserver.StartAPIServer(b.Context(), testOptions(b.TempDir()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := stop(s); err != nil {
			b.Error(err)
		}
	})
	createDefinitions(b, s)
	manyClusters(b, s)
	kube := newAdmin(b, s).kube
	b.Run("pages of 500 as tables", func(b *testing.B) {
		for b.Loop() {
			pages, rows, began := 0, 0, time.Now()
			most := measurePeak(func() { pages, rows = readTables(b, kube) })
			if rows != benchedNodes {
				b.Fatalf("%d nodes come", rows)
			}
			b.ReportMetric(most, "peak-MB")
			b.ReportMetric(float64(time.Since(began).Milliseconds())/float64(pages), "ms/page")
		}
	})
	b.Run("whole as protobuf", func(b *testing.B) {
		for b.Loop() {
			var n int64
			began := time.Now()
			b.ReportMetric(measurePeak(func() {
				body, err := kube.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes").SetHeader("Accept", "application/vnd.kubernetes.protobuf").Stream(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				defer body.Close()
				if n, err = io.Copy(io.Discard, body); err != nil {
					b.Fatalf("after %v and %d bytes: %v", time.Since(began), n, err)
				}
			}), "peak-MB")
			b.ReportMetric(float64(n)/1e6, "sent-MB")
		}
	})
	b.Run("watch that resumes", func(b *testing.B) {
		list, err := kube.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{Limit: 1})
		if err != nil {
			b.Fatal(err)
		}
		manyChange(b, kube)
		for b.Loop() {
			b.ReportMetric(measurePeak(func() { resumeWatch(b, kube, list.ResourceVersion) }), "peak-MB")
		}
	})
}

const changed = 100

// manyChange: some nodes are cordoned.
func manyChange(b *testing.B, kube kubernetes.Interface) {
	b.Helper()
	for i := range changed {
		if _, err := kube.CoreV1().Nodes().Patch(b.Context(), fmt.Sprintf("edge-%06d", i), "application/strategic-merge-patch+json", []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

// resumeWatch resumes a watch, until it has reported all changes.
func resumeWatch(b *testing.B, kube kubernetes.Interface, version string) {
	b.Helper()
	w, err := kube.CoreV1().Nodes().Watch(b.Context(), metav1.ListOptions{ResourceVersion: version})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Stop()
	for seen := 0; seen < changed; {
		e, ok := <-w.ResultChan()
		if _, node := e.Object.(*corev1.Node); !ok || !node {
			b.Fatalf("the watch tells %v", e)
		}
		if e.Type == watch.Modified {
			seen++
		}
	}
}

// readTables of all nodes, page by page, as kubectl reads them.
func readTables(b *testing.B, kube kubernetes.Interface) (pages, rows int) {
	b.Helper()
	for next := ""; ; {
		r := kube.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Param("limit", "500")
		if next != "" {
			r.Param("continue", next)
		}
		raw, err := r.DoRaw(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		var page metav1.Table
		if err := json.Unmarshal(raw, &page); err != nil {
			b.Fatal(err)
		}
		pages, rows = pages+1, rows+len(page.Rows)
		if next = page.Continue; next == "" {
			return pages, rows
		}
	}
}
