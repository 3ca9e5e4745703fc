package apiserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// bindings is an authorizer that allows the user admin always, and the user bound once its channel is closed.
type bindings struct{ read chan struct{} }

func (b bindings) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	known := false
	select {
	case <-b.read:
		known = true
	default:
	}
	if name := a.GetUser().GetName(); name == "admin" || name == "bound" && known {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no binding", nil
}

func TestNothingIsForbiddenBeforeTheRightsAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		readAfter, endsAfter time.Duration // 0: never
		want                 authorizer.Decision
		wantErr              error
		wantAfter            time.Duration
	}{
		"admin":    {want: authorizer.DecisionAllow},
		"bound":    {readAfter: 3 * time.Second, want: authorizer.DecisionAllow, wantAfter: 3 * time.Second},
		"stranger": {readAfter: 3 * time.Second, want: authorizer.DecisionNoOpinion, wantAfter: 3 * time.Second},
		"gone":     {endsAfter: time.Second, want: authorizer.DecisionNoOpinion, wantErr: context.DeadlineExceeded, wantAfter: time.Second},
		"patient":  {want: authorizer.DecisionNoOpinion, wantErr: context.DeadlineExceeded, wantAfter: rightsPatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				read := make(chan struct{})
				if test.readAfter > 0 {
					time.AfterFunc(test.readAfter, func() { close(read) })
				}
				ctx := t.Context()
				if test.endsAfter > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.endsAfter)
					defer cancel()
				}
				begin := time.Now()
				got, _, err := patientAuthorizer{bindings{read}, read}.Authorize(ctx, authorizer.AttributesRecord{User: &user.DefaultInfo{Name: name}})
				if got != test.want || !errors.Is(err, test.wantErr) {
					t.Errorf("decides %v, %v, want %v, %v", got, err, test.want, test.wantErr)
				}
				if took := time.Since(begin); took != test.wantAfter {
					t.Errorf("decides after %v, want %v", took, test.wantAfter)
				}
			})
		})
	}
}
