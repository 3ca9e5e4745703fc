package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/fleetview"
	"atoll.dev/atoll/internal/memberproxy"
	"atoll.dev/atoll/internal/testwait"
)

// likelyAt are clusters with rows in the namespace shop, of which some have a template with a fitting
// name.
type likelyAt struct {
	measuring
	likely map[string]bool
}

func (l likelyAt) ClustersLikelyHolding(_ string, fits func(string) bool) map[string]bool {
	if !fits("db") || fits("web") {
		return nil
	}
	return l.likely
}

// askedClusters are the clusters that were asked.
type askedClusters struct {
	mu    sync.Mutex
	names []string
}

func (a *askedClusters) takeNames() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := slices.Sorted(slices.Values(a.names))
	a.names = nil
	return out
}

// newNamedFleet makes n clusters c000, c001 and so on. Those in pods have the pod db-0, which nothing
// controls in those in templates; those in broken close the connection.
func newNamedFleet(n int, likely, pods, templates, broken []string) (*Fleet, *askedClusters) {
	at, asked := likelyAt{likely: map[string]bool{}}, &askedClusters{}
	for i := range n {
		c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: true}}
		c.Name = fmt.Sprintf("c%03d", i)
		c.UID = types.UID(c.Name)
		at.measuring = append(at.measuring, c)
	}
	for _, name := range likely {
		at.likely[name] = true
	}
	dial := func(_ context.Context, uid string) (net.Conn, error) {
		hub, there := net.Pipe()
		go func() {
			defer there.Close()
			in := bufio.NewReader(there)
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			asked.mu.Lock()
			asked.names = append(asked.names, uid)
			asked.mu.Unlock()
			if slices.Contains(broken, uid) {
				return
			}
			code, obj := http.StatusOK, runtime.Object(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}})
			if !slices.Contains(templates, uid) {
				obj.(*corev1.Pod).OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "set", Controller: ptr.To(true)}}
			}
			if !slices.Contains(pods, uid) {
				code, obj = http.StatusNotFound, &apierrors.NewNotFound(corev1.Resource("pods"), "db-0").ErrStatus
			}
			body, _ := runtime.Encode(clientscheme.Codecs.EncoderForVersion(protobuf.Serializer, corev1.SchemeGroupVersion), obj)
			fmt.Fprintf(there, "HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s", code, len(body), body)
			_, _ = io.Copy(io.Discard, in)
		}()
		return hub, nil
	}
	return New(Options{
		Tables: func() (Tables, bool) { return Tables{at, at, at}, true },
		Own:    func(user.Info) bool { return false },
		Reach:  memberproxy.New(memberproxy.Options{Dial: dial, Log: slog.New(slog.DiscardHandler)}),
	}), asked
}

// TestFewMembersAreAskedForAName: those with a fitting template first, the others only where none of
// these has it, and never more than a list asks at a time.
func TestFewMembersAreAskedForAName(t *testing.T) {
	clusters := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("c%03d", i))
		}
		return out
	}
	for _, c := range []struct {
		what                 string
		n                    int
		likely, pods, broken []string
		templates            []string
		among                string
		asked                []string
		holders              []string
		unknown, unasked     int
	}{
		{what: "a fitting template, among many", n: 1000, likely: []string{"c007"}, pods: []string{"c007", "c900"}, asked: []string{"c007"}, holders: []string{"c007"}},
		{what: "fitting templates in two", n: 5, likely: []string{"c001", "c002"}, pods: []string{"c001", "c002"}, asked: []string{"c001", "c002"}, holders: []string{"c001", "c002"}},
		{what: "no fitting template", n: 3, pods: []string{"c002"}, asked: clusters(3), holders: []string{"c002"}},
		{what: "a fitting template without the pod", n: 3, likely: []string{"c000"}, pods: []string{"c002"}, asked: clusters(3), holders: []string{"c002"}},
		{what: "none has it", n: 2, likely: []string{"c000"}, asked: clusters(2)},
		{what: "a broken one", n: 2, likely: clusters(2), pods: []string{"c000"}, broken: []string{"c001"}, asked: clusters(2), holders: []string{"c000"}, unknown: 1},
		{what: "a broken one without a fitting template", n: 2, likely: []string{"c000"}, pods: []string{"c000"}, broken: []string{"c001"}, asked: []string{"c000"}, holders: []string{"c000"}},
		{what: "one without a controller", n: 2, pods: clusters(2), templates: []string{"c001"}, asked: clusters(2), holders: []string{"c000"}},
		{what: "as many as are asked", n: atOnce, asked: clusters(atOnce)},
		{what: "too many", n: atOnce + 1, pods: []string{"c000"}, unasked: atOnce + 1},
		{what: "too many others", n: atOnce + 1, likely: []string{"c000"}, asked: []string{"c000"}, unasked: atOnce},
		{what: "a selected cluster among too many", n: 1000, among: "atoll.dev/cluster=c500", pods: []string{"c400", "c500"}, asked: []string{"c500"}, holders: []string{"c500"}},
		{what: "no selected cluster", n: 2, among: "!atoll.dev/cluster", pods: clusters(2)},
	} {
		f, asked := newNamedFleet(c.n, c.likely, c.pods, c.templates, c.broken)
		among, err := labels.Parse(c.among)
		if err != nil {
			t.Fatal(err)
		}
		ctx, _ := whoAsks(t, "jane", "shop")
		found, err := f.lookUpOwnName(ctx, kinds["pods"], "shop", "db-0", fleetview.SelectionOf(among, nil))
		slices.Sort(found.Holders)
		if err != nil || !slices.Equal(found.Holders, c.holders) || len(found.Unknown) != c.unknown || found.Unasked != c.unasked {
			t.Errorf("%s: found is %+v, %v", c.what, found, err)
		}
		if got := slices.Compact(asked.takeNames()); !slices.Equal(got, c.asked) {
			t.Errorf("%s: asked are %v", c.what, got)
		}
		testwait.UntilTrue(t, c.what+": the memory of the answers is free", func() bool { return f.budget.tryReserveBytes("all", f.budget.maxBytes/2) })
	}
}

// TestANameIsNotResolvedWithoutRoom: a cluster that the user may not ask now is not left out.
func TestANameIsNotResolvedWithoutRoom(t *testing.T) {
	f, asked := newNamedFleet(2, nil, []string{"c000"}, nil, nil)
	f.shares.maxPerUser = 0
	ctx, _ := whoAsks(t, "jane", "shop")
	if _, err := f.lookUpOwnName(ctx, kinds["pods"], "shop", "db-0", fleetview.FleetSelection{}); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "under way") {
		t.Errorf("the error is %v", err)
	}
	if got := asked.takeNames(); len(got) > 0 {
		t.Errorf("asked are %v", got)
	}
}
