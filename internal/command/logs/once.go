package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

// logReader reads logs.
type logReader struct {
	o       *logsOptions
	client  *client.Connection
	lines   *output.Lines
	notes   *output.Lines
	palette *output.Palette
}

// newLogRequest returns a request of a container's log. The times decide in which order lines go, and where to go on.
func (r *logReader) newLogRequest(s logSource, from time.Time) *rest.Request {
	out := r.client.REST.Get().AbsPath("/api/v1/namespaces", s.pod.Namespace, "pods", s.pod.Name, "log").
		Param("container", s.container).Param("timestamps", "true")
	if r.o.follow {
		out.Param("follow", "true")
	}
	if r.o.previous {
		out.Param("previous", "true")
	}
	if !from.IsZero() {
		return out.Param("sinceTime", from.UTC().Format(time.RFC3339))
	}
	if r.o.tail >= 0 {
		out.Param("tailLines", strconv.FormatInt(r.o.tail, 10))
	}
	if seconds := int64((r.o.since + time.Second - 1) / time.Second); seconds > 0 {
		out.Param("sinceSeconds", strconv.FormatInt(seconds, 10))
	}
	return out
}

// open opens a container's log.
func (r *logReader) open(ctx context.Context, s logSource, from time.Time) (io.ReadCloser, error) {
	body, err := r.newLogRequest(s, from).Stream(ctx)
	if err != nil {
		return nil, r.client.ExplainError(err)
	}
	return body, nil
}

// print prints a line of a container.
func (r *logReader) print(s logSource, l logLine) error {
	prefix := ""
	if !r.o.noPrefix {
		prefix = r.palette.PaintText(s.clusterName(), s.linePrefix()) + " "
	}
	if r.o.timestamps && l.stamp != nil {
		prefix += string(l.stamp) + " "
	}
	return r.lines.Print(prefix, l.text)
}

// printNote prints something that is no line of a log.
func (r *logReader) printNote(format string, args ...any) {
	_ = r.notes.Print("", fmt.Appendf(nil, format, args...)) // a broken output cannot show that error either
}

// errNothing: nothing could be read.
var errNothing = errors.New("nothing could be read")

// readOnce reads the logs up to now.
func (r *logReader) readOnce(ctx context.Context, sources []logSource) error {
	bodies, failed := make([]io.ReadCloser, len(sources)), make([]error, len(sources))
	var opening sync.WaitGroup
	for i, s := range sources {
		opening.Go(func() { bodies[i], failed[i] = r.open(ctx, s, time.Time{}) })
	}
	opening.Wait()
	scanners := make([]*logScanner, len(sources))
	next := make([]func() (logLine, bool), len(sources))
	read := 0
	for i, body := range bodies {
		if failed[i] != nil {
			r.printNote("%s cannot be read: %v", sources[i].linePrefix(), failed[i])
			next[i] = func() (logLine, bool) { return logLine{}, false }
			continue
		}
		defer body.Close()
		scanners[i] = newScanner(body, time.Time{})
		next[i] = scanners[i].next
		read++
	}
	if err := merge(next, func(of int, l logLine) error { return r.print(sources[of], l) }); err != nil {
		return fmt.Errorf("write what was read: %w", err)
	}
	for i, s := range scanners {
		if s != nil && s.scanError() != nil && ctx.Err() == nil {
			r.printNote("%s: its log breaks off: %v", sources[i].linePrefix(), s.scanError())
		}
	}
	if read == 0 {
		return fmt.Errorf("%w of %d containers; the reasons are above", errNothing, len(sources))
	}
	return nil
}
