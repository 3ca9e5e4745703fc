package nodes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	api "k8s.io/kubernetes/pkg/apis/core"

	"atoll.dev/atoll/api/v1alpha1"
)

// pages of Clusters, as etcd's storage gives them: it continues from no version but its own.
type pages struct {
	storage.Interface
	clusters int
	asked    []storage.ListOptions
}

func (p *pages) GetList(_ context.Context, _ string, o storage.ListOptions, into runtime.Object) error {
	p.asked = append(p.asked, o)
	if o.Predicate.Continue != "" && o.ResourceVersion != "" {
		return fmt.Errorf("a version and a continuation are asked for")
	}
	from, _ := strconv.Atoi(o.Predicate.Continue)
	to := p.clusters
	if o.Predicate.Limit > 0 {
		to = min(to, from+int(o.Predicate.Limit))
	}
	list := into.(*v1alpha1.ClusterList)
	list.ResourceVersion = "7"
	for i := from; i < to; i++ {
		c := v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
		c.Name = fmt.Sprintf("c%06d", i)
		list.Items = append(list.Items, c)
	}
	if to < p.clusters {
		list.Continue = strconv.Itoa(to)
	}
	return nil
}

// TestAListThatNobodyBoundsIsReadInPages: it is complete, and of one version. A list with a limit
// has that length.
func TestAListThatNobodyBoundsIsReadInPages(t *testing.T) {
	for name, c := range map[string]struct {
		limit     int64
		from      string
		recursive bool
		want      []int64 // limits by which the store is asked
		nodes     int
		next      string
	}{
		"whole":          {recursive: true, want: []int64{atOnce, atOnce, atOnce}, nodes: 2500},
		"the rest":       {recursive: true, from: "500", want: []int64{atOnce, atOnce}, nodes: 2000},
		"a page":         {recursive: true, limit: 500, want: []int64{500}, nodes: 500, next: "500"},
		"one of a name":  {want: []int64{0}, nodes: 2500},
		"the last pages": {recursive: true, limit: 5000, from: "2000", want: []int64{5000}, nodes: 500},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pages{clusters: 2500}
			o := storage.ListOptions{Recursive: c.recursive, Predicate: storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), Limit: c.limit, Continue: c.from}}
			if c.from == "" {
				o.ResourceVersion = "5"
			}
			var list api.NodeList
			if err := (readOnlyNodeStorage{p}).GetList(t.Context(), "/", o, &list); err != nil {
				t.Fatal(err)
			}
			var limits []int64
			for _, o := range p.asked {
				limits = append(limits, o.Predicate.Limit)
			}
			ordered := slices.IsSortedFunc(list.Items, func(a, b api.Node) int {
				if a.Name < b.Name {
					return -1
				}
				return 1
			})
			if !slices.Equal(limits, c.want) || len(list.Items) != c.nodes || !ordered || list.Continue != c.next || list.ResourceVersion != "7" {
				t.Errorf("%d nodes, ordered %t, by %v, at %s, then %q", len(list.Items), ordered, limits, list.ResourceVersion, list.Continue)
			}
		})
	}
}
