package inventory

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/agent/member"
)

// labelProperties returns the properties of node labels with these keys, sorted.
func labelProperties(keys []string, nodes ...string) (out []string) {
	i := inventoryOf()
	i.ReportNodeLabels(keys)
	var all []any
	for n, labels := range nodes {
		all = append(all, labelledNode(fmt.Sprint("n", n), labels))
	}
	_ = i.newNodeSumStore().Replace(all, "")
	for name, value := range i.currentProperties() {
		if strings.Contains(name, ownProperties+"/") {
			out = append(out, name+": "+value)
		}
	}
	return slices.Sorted(slices.Values(out))
}

// The nodeLabels of the policy are keys: each value has its nodes, and their CPU and memory.
func TestLabelsOfNodesAreProperties(t *testing.T) {
	for name, tc := range map[string]struct {
		keys, nodes, want []string
	}{
		"no keys": {nil, []string{"kubernetes.io/arch=arm64"}, nil},
		"a key": {[]string{"kubernetes.io/arch"}, []string{"kubernetes.io/arch=arm64", "kubernetes.io/arch=arm64 pool=a", "kubernetes.io/arch=amd64", "pool=a"}, []string{
			"cpu.nodes.atoll.dev/kubernetes.io/arch=amd64: 4", "cpu.nodes.atoll.dev/kubernetes.io/arch=arm64: 8",
			"memory.nodes.atoll.dev/kubernetes.io/arch=amd64: 64Gi", "memory.nodes.atoll.dev/kubernetes.io/arch=arm64: 128Gi",
			"nodes.atoll.dev/kubernetes.io/arch: 3", "nodes.atoll.dev/kubernetes.io/arch=amd64: 1", "nodes.atoll.dev/kubernetes.io/arch=arm64: 2",
		}},
		"a label of feature discovery without a value": {[]string{"feature.node.kubernetes.io/pci-10de.present", "none"}, []string{"feature.node.kubernetes.io/pci-10de.present="}, []string{
			"cpu.nodes.atoll.dev/feature.node.kubernetes.io/pci-10de.present=: 4", "memory.nodes.atoll.dev/feature.node.kubernetes.io/pci-10de.present=: 64Gi",
			"nodes.atoll.dev/feature.node.kubernetes.io/pci-10de.present: 1", "nodes.atoll.dev/feature.node.kubernetes.io/pci-10de.present=: 1",
		}},
		"a value that no API server stores": {[]string{"pool"}, []string{"pool=a,b", "pool=" + strings.Repeat("x", 64)}, nil},
		"no nodes":                          {[]string{"pool"}, nil, nil},
		"a name that is too long":           {[]string{strings.Repeat("d", 230) + "/k"}, []string{strings.Repeat("d", 230) + "/k=v"}, []string{"nodes.atoll.dev/" + strings.Repeat("d", 230) + "/k: 1"}},
	} {
		if got := labelProperties(tc.keys, tc.nodes...); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
}

// If there are many values, each key keeps those of most nodes, and the keys stated first have one more.
func TestReportedLabelValuesAreFew(t *testing.T) {
	keys := []string{"type", "pool", "zone", "rack", "os"}
	var nodes []string
	for n := range 40 {
		labels := ""
		for _, key := range keys {
			labels += fmt.Sprintf("%s=v%02d ", key, n/2%(10+n%3))
		}
		nodes = append(nodes, labels)
	}
	values := map[string]int{}
	for _, property := range labelProperties(keys, nodes...) {
		name, _, _ := strings.Cut(property, ": ")
		key, _, isValue := strings.Cut(strings.TrimPrefix(name, propertyNodes+"/"), "=")
		if strings.HasPrefix(name, propertyNodes+"/") && isValue {
			values[key]++
		}
	}
	if want := map[string]int{"type": 3, "pool": 3, "zone": 2, "rack": 2, "os": 2}; !maps.Equal(values, want) {
		t.Errorf("values by key: %v, want %v", values, want)
	}
}

// The kept labels of one node have a bound, also with many long keys.
func TestReportedLabelsOfANodeAreBounded(t *testing.T) {
	i, labels := inventoryOf(), ""
	for n := range 8 {
		key := fmt.Sprintf("k%d.example/%s", n, strings.Repeat("x", 250))
		i.labelKeys, labels = append(i.labelKeys, key), labels+key+"=v "
	}
	if got := len(i.reportedLabelsOf(labelledNode("one", labels)).Value()); got == 0 || got > mostReportedLabelText {
		t.Errorf("%d bytes are kept", got)
	}
}

// No object of the member replaces a property of labels, and a rest leaves the snapshot as it is.
func TestLabelPropertiesAreTheAgents(t *testing.T) {
	i := inventoryOf()
	i.stated = map[string]string{}
	i.recordProperty(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": propertyNodes + "/pool=a"}, "spec": map[string]any{"value": "1000"},
	}})
	if len(i.stated) > 0 {
		t.Errorf("stated: %v", i.stated)
	}
	i.ReportNodeLabels([]string{"pool"})
	_ = i.newNodeSumStore().Replace([]any{labelledNode("one", "pool=a"), labelledNode("two", "pool=b")}, "")
	first := i.currentProperties()
	if first[propertyNodes+"/pool=a"] != "1" {
		t.Fatalf("properties %v", first)
	}
	_ = i.newNodeSumStore().Update(labelledNode("one", "pool=a other=changes"))
	if again := i.currentProperties(); !maps.Equal(again, first) {
		t.Errorf("another label changes the properties: %v", again)
	}
	for name, value := range first {
		if len(name) > v1alpha1.MaxPropertyName || len(value) > v1alpha1.MaxPropertyValue {
			t.Errorf("the hub drops %s", name)
		}
	}
}

// A change of the keys lists the nodes again, and counts with the former ones until then.
func TestChangedLabelKeysListTheNodesAgain(t *testing.T) {
	m := aMember{asked: make(chan string), answer: make(chan struct{})}
	server := httptest.NewServer(m)
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	client, err := member.New(config)
	if err != nil {
		t.Fatal(err)
	}
	i, err := New(Options{Config: config, Client: client, Changed: func() {}, Served: func() {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { i.watchNodes(ctx) })
	defer running.Wait()
	defer cancel()
	awaitKeys := func(want ...string) {
		t.Helper()
		for {
			i.mu.Lock()
			are, listed := slices.Clone(i.labelKeys), i.counted[countNodes]
			i.mu.Unlock()
			if listed && slices.Equal(are, want) {
				return
			}
			select {
			case <-i.wake:
			case <-t.Context().Done():
				t.Fatalf("the keys are %v", are)
			}
		}
	}
	<-m.asked
	m.answer <- struct{}{}
	awaitKeys()
	i.ReportNodeLabels([]string{"pool"})
	<-m.asked
	i.mu.Lock()
	if len(i.labelKeys) > 0 {
		t.Errorf("the keys %v count before the nodes are listed", i.labelKeys)
	}
	i.mu.Unlock()
	m.answer <- struct{}{}
	awaitKeys("pool")
	i.ReportNodeLabels([]string{"pool"}) // the same: the nodes are not listed again
	i.ReportNodeLabels(nil)
	<-m.asked
	m.answer <- struct{}{}
	awaitKeys()
}
