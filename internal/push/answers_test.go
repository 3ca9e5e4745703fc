package push

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/agent/member"
)

const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// packObject is an object of v1 as an API server answers with it in protobuf.
func packObject(t testing.TB, kind string, message []byte) []byte {
	t.Helper()
	text, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: message}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(protobufMark), text...)
}

// packFrame is an event of a watch in protobuf.
func packFrame(t testing.TB, object []byte) []byte { return packEvent(t, watch.Added, object) }

func packEvent(t testing.TB, kind watch.EventType, object []byte) []byte {
	t.Helper()
	event, err := (&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// emptyItems are n items of a list that say nothing, in protobuf.
func emptyItems(n int) []byte {
	return bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), nil), n)
}

// zipZeros returns a text of so many MiB in few bytes.
func zipZeros(t testing.TB, mebibytes int64) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := io.Copy(w, io.LimitReader(zeros{}, mebibytes<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// hostileMember answers every request alike.
type hostileMember struct {
	code           int
	form, encoding string
	body           func() io.Reader
}

func (m hostileMember) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", m.form)
	if m.encoding != "" {
		w.Header().Set("Content-Encoding", m.encoding)
	}
	w.WriteHeader(m.code)
	_, _ = io.Copy(w, m.body()) // the hub goes
}

// readGuarded asks a member and returns what is read of its answer.
func readGuarded(t *testing.T, m http.Handler, query, accept string) (header http.Header, read int64, err error) {
	t.Helper()
	server := httptest.NewServer(m)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/pods?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: newResponseMemoryBudget(allAnswersMost).newLimit().guardAnswers(transport)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	read, err = io.Copy(io.Discard, answer.Body)
	return answer.Header, read, err
}

// TestAMemberCannotFillTheHub: no answer is read that would take more memory than it may, whatever
// its form says.
func TestAMemberCannotFillTheHub(t *testing.T) {
	t.Parallel()
	bomb := zipZeros(t, 200)
	text := func(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }
	endless := func(head string) func() io.Reader {
		return func() io.Reader { return io.MultiReader(strings.NewReader(head), zeros{}) }
	}
	for what, c := range map[string]struct {
		member        hostileMember
		query, accept string
		most          int64
	}{
		"endless JSON":           {hostileMember{form: asJSON, body: endless(`{"items":["`)}, "", asJSON, answerMost},
		"endless without a form": {hostileMember{form: "", body: endless(`"`)}, "", asJSON, answerMost},
		"endless protobuf":       {hostileMember{form: asProtobuf, body: endless(protobufMark)}, "", asProtobuf, 0},
		"zipped JSON":            {hostileMember{form: asJSON, encoding: "gzip", body: func() io.Reader { return bytes.NewReader(bomb) }}, "", asJSON, answerMost},
		"empty pods":             {hostileMember{form: asProtobuf, body: func() io.Reader { return bytes.NewReader(packObject(t, "PodList", emptyItems(600_000))) }}, "", asProtobuf, 0},
		"empty pods as JSON":     {hostileMember{form: asJSON, body: text(`{"items":[{}` + strings.Repeat(",{}", 600_000) + "]}")}, "", asProtobuf, 600_000},
		"objects of no kind":     {hostileMember{form: asProtobuf, body: func() io.Reader { return bytes.NewReader(packObject(t, "PodLis", emptyItems(1))) }}, "", asProtobuf, 0},
		"nested JSON":            {hostileMember{form: asJSON, body: text(strings.Repeat("[", 100_000))}, "", asJSON, 64 << 10},
		"an endless event":       {hostileMember{form: asJSON, body: endless(`{"type":"`)}, "watch=true", asJSON, eventMost},
		"white space in a watch": {hostileMember{form: asJSON, body: endless(strings.Repeat("{}", 10))}, "watch=1", asJSON, eventMost},
		"an event of 4 GiB":      {hostileMember{form: asProtobuf + ";stream=watch", body: endless("\xff\xff\xff\xff")}, "watch=true", asProtobuf, 0},
		"an event of nothings": {hostileMember{form: asProtobuf + ";stream=watch", body: func() io.Reader {
			return bytes.NewReader(packFrame(t, packObject(t, "PodList", emptyItems(600_000))))
		}}, "watch=true", asProtobuf, 0},
	} {
		c.member.code = http.StatusOK
		if _, read, err := readGuarded(t, c.member, c.query, c.accept); !errors.Is(err, errAnswer) || read > c.most {
			t.Errorf("%s: %d bytes are read, %v", what, read, err)
		}
	}
}

// TestShortAnswersAreCut: the code of an error decides, whatever its text; what is neither JSON nor
// protobuf is not decoded.
func TestShortAnswersAreCut(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		member hostileMember
		want   int64
	}{
		"an endless error":     {hostileMember{code: 403, form: asJSON, body: func() io.Reader { return zeros{} }}, 0},
		"an error of nothings": {hostileMember{code: 403, form: asJSON, body: func() io.Reader { return strings.NewReader("[" + strings.Repeat("{},", 10_000) + "]") }}, 0},
		"an error in protobuf": {hostileMember{code: 403, form: asProtobuf, body: func() io.Reader { return bytes.NewReader(packObject(t, "PodList", emptyItems(20_000))) }}, 0},
		"endless YAML":         {hostileMember{code: 200, form: "application/yaml", body: func() io.Reader { return zeros{} }}, 0},
		"a short error":        {hostileMember{code: 503, form: "text/plain", body: func() io.Reader { return strings.NewReader("it is down") }}, 10},
	} {
		header, read, err := readGuarded(t, c.member, "", asProtobuf)
		if read != c.want || err != nil {
			t.Errorf("%s: %d bytes are read, %v", what, read, err)
		}
		if form := header.Get("Content-Type"); form != asJSON && form != asProtobuf && form != "text/plain" {
			t.Errorf("%s: it is to be decoded as %s", what, form)
		}
	}
}

// TestHonestAnswersPass: unchanged, and as client-go reads them.
func TestHonestAnswersPass(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: "7"}, Spec: corev1.PodSpec{NodeName: "n"}}
	list := corev1.PodList{}
	for range 20_000 { // more than a large answer
		list.Items = append(list.Items, pod)
	}
	message, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	one, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	whole, frame := packObject(t, "PodList", message), packFrame(t, packObject(t, "Pod", one))
	if len(whole) <= largeAnswer {
		t.Fatalf("a list of %d bytes is not large", len(whole))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case q.Get("watch") != "":
			w.Header().Set("Content-Type", asProtobuf+";stream=watch")
			_, _ = w.Write(bytes.Repeat(frame, 3)) // the test sees what is missing
		case strings.HasSuffix(r.URL.Path, "/none"):
			w.Header().Set("Content-Type", asJSON)
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"it is not there"}`)
		default:
			w.Header().Set("Content-Type", asProtobuf)
			_, _ = w.Write(whole)
		}
	}))
	defer server.Close()
	client, err := member.TypedClient(&rest.Config{Host: server.URL, WrapTransport: newResponseMemoryBudget(allAnswersMost).newLimit().guardAnswers}, "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second has the place of the first
		var got corev1.PodList
		if err := client.Get().Resource("pods").Do(t.Context()).Into(&got); err != nil || len(got.Items) != len(list.Items) || got.Items[1].Name != "web" {
			t.Fatalf("%d pods are listed, %v", len(got.Items), err)
		}
	}
	w, err := client.Get().Resource("pods").Param("watch", "true").Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for e := range w.ResultChan() {
		if p, ok := e.Object.(*corev1.Pod); !ok || p.Name != "web" || e.Type != watch.Added {
			t.Errorf("an event is %+v", e)
		}
		seen++
	}
	if seen != 3 {
		t.Errorf("%d events are seen, want 3", seen)
	}
	if err := client.Get().Resource("pods").Name("none").Do(t.Context()).Error(); err == nil || err.Error() != "it is not there" {
		t.Errorf("a missing pod: %v", err)
	}
}

// TestAFloodIsReadSlowly: the weight that is read in a time is bounded, and short answers do not wait
// for it, such as the one that renews the member's Lease.
func TestAFloodIsReadSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const event = `{"type":"ADDED","object":{}}` + "\n"
		limit := newResponseMemoryBudget(allAnswersMost).newLimit()
		transport := limit.guardAnswers(roundTripper(func(r *http.Request) (*http.Response, error) {
			text := event
			if r.URL.Query().Get("watch") != "" {
				text = strings.Repeat(event, 1_000_000)
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {asJSON}}, Body: io.NopCloser(strings.NewReader(text))}, nil
		}))
		ask := func(ctx context.Context, query string) io.ReadCloser {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://member/api/v1/pods?"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			return answer.Body
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		flood := ask(ctx, "watch=true")
		defer flood.Close()
		begin := time.Now()
		read, err := io.Copy(io.Discard, flood)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Fatalf("%d bytes are read in %s, %v", read, time.Since(begin), err)
		}
		// Each event counts 4096 at least; a read of 32 KiB, as io.Copy does, is counted at once.
		events, most := read/int64(len(event)), int64((256+16*60)<<20)/4096+32<<10/int64(len(event))
		if events > most || events < most/2 {
			t.Errorf("%d events are read in a minute, want at most %d", events, most)
		}
		short := ask(t.Context(), "")
		defer short.Close()
		begin = time.Now()
		if text, err := io.ReadAll(short); string(text) != event || err != nil || time.Since(begin) != 0 {
			t.Errorf("a short answer takes %s: %q, %v", time.Since(begin), text, err)
		}
	})
}

// TestLargeAnswersAreReadOneAfterAnother: of one member; the next one goes on when the first ends.
func TestLargeAnswersAreReadOneAfterAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := newResponseMemoryBudget(allAnswersMost).newLimit()
		begin := func(form string) (io.ReadCloser, <-chan error) {
			text := fmt.Sprintf(`[%q]`, strings.Repeat("x", 2*largeAnswer))
			answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {form}}, Body: io.NopCloser(strings.NewReader(text))}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://member/", nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := limit.guardAnswers(roundTripper(func(*http.Request) (*http.Response, error) { return answer, nil })).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, got.Body)
				done <- err
			}()
			return got.Body, done
		}
		for _, form := range []string{asJSON, asProtobuf} {
			first, done := begin(form)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			second, done := begin(form)
			synctest.Wait()
			select {
			case err := <-done:
				t.Errorf("%s: two large answers are held at once, %v", form, err)
			default:
			}
			first.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
			second.Close()
		}
	})
}

// TestInitialEventsEndWithABookmark: what a list takes with which a watch begins is given back at the
// list's end, so that later events do not count, and at the end of a watch that is cut before it.
func TestInitialEventsEndWithABookmark(t *testing.T) {
	t.Parallel()
	pod := packObject(t, "Pod", nil)
	added, end := packEvent(t, watch.Added, pod), packEvent(t, watch.Bookmark, pod)
	limit := newResponseMemoryBudget(allAnswersMost).newLimit()
	open := func(text ...[]byte) *limitedResponseBody {
		b := &limitedResponseBody{ctx: t.Context(), from: io.NopCloser(bytes.NewReader(bytes.Join(text, nil))), limit: limit, form: formProtobuf, keeps: keepsInitialEvents}
		b.next = b.nextWatchFrame
		return b
	}
	read := func(b *limitedResponseBody, frames int) error {
		for range frames {
			if _, err := io.ReadFull(b, make([]byte, len(added))); err != nil {
				return err
			}
		}
		return nil
	}
	list := open(added, added)
	if err := read(list, 2); err != nil || limit.kept < 2*eventLeast {
		t.Fatalf("two events of a list take %d, %v", limit.kept, err)
	}
	each := limit.kept / 2
	limit.most = 3 * each
	second := open(added, end, added, added, added)
	if err := read(second, 1); err != nil || limit.kept != 3*each {
		t.Fatalf("three events of two lists take %d, %v; want %d", limit.kept, err, 3*each)
	}
	if err := read(open(added), 1); !errors.Is(err, errAnswer) {
		t.Errorf("a fourth event: %v", err)
	}
	if err := list.Close(); err != nil || limit.kept != each {
		t.Fatalf("after the end of a list, %d are taken, %v; want %d", limit.kept, err, each)
	}
	if _, err := io.ReadAll(second); err != nil || limit.kept != 0 {
		t.Errorf("after the bookmark, %d are taken, %v", limit.kept, err)
	}
	if err := read(list, 1); err == nil || limit.kept != 0 {
		t.Errorf("a closed answer takes %d, %v", limit.kept, err)
	}
}

// TestAListEnds: a member may list without end, in pages or as the beginning of a watch.
func TestAListEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, most = 1 << 20, 16 << 20 // a page has one string
		page := `["` + strings.Repeat("x", size) + `"]`
		limit := newResponseMemoryBudget(allAnswersMost).newLimit()
		limit.most = most
		transport := limit.guardAnswers(roundTripper(func(r *http.Request) (*http.Response, error) {
			var from io.Reader = strings.NewReader(page)
			if r.URL.Query().Get("watch") != "" {
				from = &repeated{text: `{"object":"` + strings.Repeat("x", 1<<20) + `"}`}
			}
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {asJSON}}, Body: io.NopCloser(from)}, nil
		}))
		read := func(path, query string) (int64, error) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://member"+path+"?"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			return io.Copy(io.Discard, answer.Body)
		}
		readPages := func(path string) (pages int) {
			for {
				if _, err := read(path, "continue=x"); err != nil {
					if !errors.Is(err, errAnswer) {
						t.Errorf("page %d of %s: %v", pages, path, err)
					}
					return pages
				}
				pages++
			}
		}
		// 16 pages take 16 MiB and a few bytes.
		if pages := readPages("/a"); pages != 15 {
			t.Errorf("%d pages are read", pages)
		}
		if pages := readPages("/b"); pages != 0 {
			t.Errorf("%d pages of another list are read besides", pages)
		}
		if _, err := read("/a", ""); err != nil {
			t.Errorf("the first page of the next list: %v", err)
		}
		if n, err := read("/c", "watch=true&sendInitialEvents=true"); !errors.Is(err, errAnswer) || n > most || n < most*3/4 {
			t.Errorf("a watch that begins with a list ends after %d bytes, %v", n, err)
		}
		if pages := readPages("/b"); pages != 15 {
			t.Errorf("%d pages are read after the watch ended", pages)
		}
		time.Sleep(pageIdle) // of the bubble: no page of /b comes for so long
		if pages := readPages("/b"); pages != 0 {
			t.Errorf("%d pages more are read of a list that is as long as it may be", pages)
		}
		if pages := readPages("/d"); pages != 15 {
			t.Errorf("%d pages are read after a list that has ended", pages)
		}
	})
}

// repeated is a text again and again, without end.
type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

// TestEveryKindOfTheAgentIsWeighed: a kind without a weight would be refused.
func TestEveryKindOfTheAgentIsWeighed(t *testing.T) {
	t.Parallel()
	for kind, version := range map[string]string{
		"PodList": "v1", "Node": "v1", "Secret": "v1", "Event": "v1", "Status": "v1", "Lease": "coordination.k8s.io/v1",
		"PartialObjectMetadata": "meta.k8s.io/v1", "PartialObjectMetadataList": "meta.k8s.io/v1",
		"ReplicaSetList": "apps/v1", "ControllerRevisionList": "apps/v1", "JobList": "batch/v1", "EndpointSliceList": "discovery.k8s.io/v1",
		"NodeMetricsList": "metrics.k8s.io/v1beta1", "PodMetricsList": "metrics.k8s.io/v1beta1",
	} {
		text, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: kind}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		data := append([]byte(protobufMark), text...)
		if weight, err := weighObject(data, decodedMost); err != nil || weight != len(data) {
			t.Errorf("an empty %s weighs %d, %v", kind, weight, err)
		}
	}
}
