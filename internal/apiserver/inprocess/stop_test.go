package inprocess_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"atoll.dev/atoll/internal/apiserver/inprocess"
)

func TestRequestsWaitUntilOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := inprocess.New(t.Context())
		c := &http.Client{Transport: tr}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Do(newRequest(t, "GET", "/", nil).WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before it is open: %v", err)
		}
		answered := make(chan int)
		go func() {
			response, _ := sendRequest(t, c, newRequest(t, "GET", "/", nil))
			answered <- response.StatusCode
		}()
		synctest.Wait()
		tr.Open(http.NotFoundHandler())
		if status := <-answered; status != http.StatusNotFound {
			t.Errorf("answered with %d", status)
		}
		never := inprocess.New(t.Context())
		refused := make(chan error)
		go func() {
			_, err := never.RoundTrip(newRequest(t, "GET", "/", nil))
			refused <- err
		}()
		synctest.Wait()
		never.Close()
		if err := <-refused; !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("of a server that never began: %v", err)
		}
	})
}

func TestStopEndsStreamsAndLetsOthersFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		tr, c := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/watch":
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			case "/late-watch":
				<-release
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			case "/unary":
				<-release
				io.WriteString(w, "done")
			}
		}))
		ends := map[string]string{}
		var mu sync.Mutex
		var group sync.WaitGroup
		for _, path := range []string{"/watch", "/late-watch", "/unary"} {
			group.Go(func() {
				end := fetchBody(c, newRequest(t, "GET", path, nil))
				mu.Lock()
				defer mu.Unlock()
				ends[path] = end
			})
		}
		synctest.Wait()
		tr.Stop()
		synctest.Wait()
		if fmt.Sprint(ends) != "map[/watch:reset]" {
			t.Errorf("at Stop ended %v", ends)
		}
		if end := fetchBody(c, newRequest(t, "GET", "/unary", nil)); end != "refused" {
			t.Errorf("what comes after Stop is %s", end)
		}
		close(release)
		group.Wait()
		if fmt.Sprint(ends) != "map[/late-watch:reset /unary:done /watch:reset]" {
			t.Errorf("after Stop ended %v", ends)
		}
	})
}

func TestCloseEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		tr, c := open(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			<-release // hears of its end, and does not end
			io.WriteString(w, "late")
		}))
		ended := make(chan string, 1)
		go func() { ended <- fetchBody(c, newRequest(t, "GET", "/", nil)) }()
		synctest.Wait()
		tr.Close()
		if end := <-ended; end != "reset" {
			t.Errorf("it ended %s", end)
		}
		close(release)
	})
}

// fetchBody returns how a request ends.
func fetchBody(c *http.Client, r *http.Request) string {
	response, err := c.Do(r)
	var content []byte
	if err == nil {
		content, err = io.ReadAll(response.Body)
		response.Body.Close()
	}
	switch {
	case err == nil:
		return string(content)
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	return err.Error()
}
