package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/memberproxy"
)

// newForeignFleet makes clusters whose agents answer every question with an object. Those with nil do not answer, and those
// without an object are not accepted.
func newForeignFleet(answers map[string]runtime.Object) *Fleet {
	var at measuring
	for name, answer := range answers {
		c := &v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Accepted: answer != notAccepted}}
		c.Name, c.UID = name, types.UID(name)
		at = append(at, c)
	}
	dial := func(_ context.Context, uid string) (net.Conn, error) {
		hub, there := net.Pipe()
		go func() {
			defer there.Close()
			in := bufio.NewReader(there)
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			answer, code := answers[uid], http.StatusOK
			if r.URL.Path != atoll.ForeignObjectsPath("shop") {
				answer = &corev1.Pod{}
			}
			if s, ok := answer.(*metav1.Status); ok {
				code = int(s.Code)
			}
			if answer != nil {
				body, _ := runtime.Encode(clientscheme.Codecs.EncoderForVersion(protobuf.Serializer, corev1.SchemeGroupVersion), answer)
				fmt.Fprintf(there, "HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s", code, len(body), body)
			}
			_, _ = io.Copy(io.Discard, in)
		}()
		return hub, nil
	}
	return New(Options{
		Tables: func() (Tables, bool) { return Tables{at, likelyAt{measuring: at}, likelyAt{measuring: at}}, true },
		Own:    func(user.Info) bool { return false },
		Reach:  memberproxy.New(memberproxy.Options{Dial: dial, Log: slog.New(slog.DiscardHandler)}),
	})
}

// notAccepted marks a cluster that cannot be reached.
var notAccepted = runtime.Object(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "no"}})

// The members of a namespace are asked at once. One that does not answer, or answers with something else, has an error.
func TestForeignObjectsOfMembers(t *testing.T) {
	found := atoll.ForeignObjects{Objects: []atoll.ForeignObject{{Resource: schema.GroupResource{Resource: "configmaps"}, Name: "mine"}}, More: 2}
	hostile := found.ToStatus()
	hostile.Details.Causes[0].Field = ""
	synctest.Test(t, func(t *testing.T) {
		f := newForeignFleet(map[string]runtime.Object{
			"a": found.ToStatus(), "b": nil, "c": &apierrors.NewNotFound(schema.GroupResource{}, "").ErrStatus,
			"d": hostile, "e": &corev1.Pod{}, "f": atoll.ForeignObjects{}.ToStatus(), "g": notAccepted,
		})
		who, _ := whoAsks(t, "jane", "shop")
		start := time.Now()
		got := f.ForeignObjects(who, "shop")
		if took := time.Since(start); took != foreignTimeout {
			t.Errorf("it took %s", took)
		}
		want := []string{"", "cluster b did not answer within 1s", "cluster c: its agent is of a version that does not show that; update it", "object 0 has no valid resource or name", "answers with a *v1.Pod", "", "cluster g"}
		if len(got) != len(want) {
			t.Fatalf("there are %d answers", len(got))
		}
		for i, m := range got {
			if m.Cluster != string(rune('a'+i)) || (m.Err == nil) != (want[i] == "") || m.Err != nil && !strings.Contains(m.Err.Error(), want[i]) {
				t.Errorf("%s: %v, want %q", m.Cluster, m.Err, want[i])
			}
		}
		if len(got[0].Objects) != 1 || got[0].Objects[0] != found.Objects[0] || got[0].More != 2 || len(got[5].Objects) != 0 {
			t.Errorf("found are %+v and %+v", got[0], got[5])
		}
		if got := f.ForeignObjects(who, "mail"); len(got) != 0 {
			t.Errorf("in a namespace without rows: %+v", got)
		}
		f.o.Reach.Transport().(interface{ CloseIdleConnections() }).CloseIdleConnections()
	})
}

// At most askedMost members are asked for one deletion.
func TestForeignObjectsOfManyMembers(t *testing.T) {
	answers := map[string]runtime.Object{}
	for i := range askedMost + 3 {
		answers[fmt.Sprintf("c%02d", i)] = atoll.ForeignObjects{}.ToStatus()
	}
	who, _ := whoAsks(t, "jane", "shop")
	unasked := 0
	for _, m := range newForeignFleet(answers).ForeignObjects(who, "shop") {
		if m.Err != nil && strings.Contains(m.Err.Error(), "at most 32 clusters are asked") {
			unasked++
		}
	}
	if unasked != 3 {
		t.Errorf("not asked are %d", unasked)
	}
}
