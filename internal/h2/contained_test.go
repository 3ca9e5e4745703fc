package h2

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// defectiveConn panics when the first SETTINGS frame ends the handshake, with the lock of its
// connection.
type defectiveConn struct{ net.Conn }

func (defectiveConn) SetDeadline(time.Time) error { panic("defect") }

// reportedPanics takes the values of panics.
type reportedPanics chan any

func (r reportedPanics) ReportPanic(value any) { r <- value }

// A panic about a frame ends its connection with a reason, keeps no lock, and is reported.
func TestAPanicAboutAFrameEndsTheConnection(t *testing.T) {
	reported := make(chan any, 1)
	o := testOptions()
	o.Panics = reportedPanics(reported)
	s := NewServer(t.Context(), o)
	defer s.Stop()
	ours, theirs := net.Pipe()
	defer ours.Close()
	served := make(chan struct{})
	go func() { defer close(served); s.Serve(defectiveConn{theirs}, nil) }()
	go func() {
		_, _ = io.WriteString(ours, http2.ClientPreface) // the reader below sees the end
		_ = http2.NewFramer(ours, nil).WriteSettings()
	}()
	code := http2.ErrCodeNo
	for f := http2.NewFramer(nil, ours); ; {
		frame, err := f.ReadFrame()
		if err != nil {
			break
		}
		if g, ok := frame.(*http2.GoAwayFrame); ok {
			code = g.ErrCode
		}
	}
	<-served
	if code != http2.ErrCodeInternal {
		t.Errorf("the connection ends with %s", code)
	}
	if value := <-reported; value != "defect" {
		t.Errorf("reported is %v", value)
	}
}
