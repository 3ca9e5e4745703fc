package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/fleetview"
	"atoll.dev/atoll/internal/memberproxy"
)

// foreignTimeout bounds the questions about foreign objects: the deletion of a namespace waits for them.
const foreignTimeout = time.Second

// ForeignObjects requests from the members with rows in a namespace the objects that would keep the namespace after its deletion.
// It returns an answer or an error for each member, by name, after a second at the latest. At most
// askedMost members that can be reached are read; further ones have an error.
func (f *Fleet) ForeignObjects(ctx context.Context, namespace string) []atoll.MemberForeignObjects {
	members, err := f.membersFor(namespace, fleetview.FleetSelection{})
	if err != nil || len(members) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, foreignTimeout)
	defer cancel()
	out := make([]atoll.MemberForeignObjects, len(members))
	var asked []*member
	places := map[*member]int{}
	for i, m := range members {
		out[i].Cluster = m.Name
		switch err := memberproxy.UnreachableReason(m.Cluster); {
		case err != nil:
			out[i].Err = err
		case len(asked) == askedMost:
			out[i].Err = fmt.Errorf("at most %d clusters are asked, and cluster %s is another one", askedMost, m.Name)
		default:
			asked, places[m] = append(asked, m), i
		}
	}
	var mu sync.Mutex
	f.forEachMember(asked, func(m *member) {
		found, err := f.foreignObjectsOf(ctx, m, namespace)
		mu.Lock()
		defer mu.Unlock()
		out[places[m]].ForeignObjects, out[places[m]].Err = found, err
	})
	return out
}

// foreignObjectsOf requests the objects from one member.
func (f *Fleet) foreignObjectsOf(ctx context.Context, m *member, namespace string) (atoll.ForeignObjects, error) {
	obj, err := f.read(ctx, m, atoll.ForeignObjectsPath(namespace), nil)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return atoll.ForeignObjects{}, fmt.Errorf("cluster %s did not answer within %s", m.Name, foreignTimeout)
	case err != nil:
		return atoll.ForeignObjects{}, err
	}
	status, ok := obj.(*metav1.Status)
	if !ok {
		return atoll.ForeignObjects{}, unexpectedAnswerError(m, obj)
	}
	found, err := atoll.ForeignObjectsFromStatus(status)
	if err != nil {
		return atoll.ForeignObjects{}, fmt.Errorf("cluster %s: the answer of its agent cannot be read: %w", m.Name, err)
	}
	return found, nil
}
