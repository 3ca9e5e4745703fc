package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestOnlyLongRequestsEndWithTheServer(t *testing.T) {
	isLong := func(_ *http.Request, info *request.RequestInfo) bool { return info.Verb == "watch" }
	for verb, ends := range map[string]bool{"watch": true, "list": false} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, stopServer := context.WithCancel(t.Context())
				client, endClient := context.WithCancel(t.Context())
				finished := make(chan struct{})
				handler := endStreams(server, isLong, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				go func() {
					defer close(finished)
					handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(request.WithRequestInfo(client, &request.RequestInfo{Verb: verb})))
				}()
				hasEnded := func() bool {
					synctest.Wait()
					select {
					case <-finished:
						return true
					default:
						return false
					}
				}
				if hasEnded() {
					t.Fatal("it ends before the server does")
				}
				stopServer()
				if got := hasEnded(); got != ends {
					t.Errorf("with the server it ends: %v, want %v", got, ends)
				}
				endClient()
				<-finished
			})
		})
	}
}
