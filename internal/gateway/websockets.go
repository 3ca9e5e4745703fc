package gateway

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"atoll.dev/atoll/internal/tunnel"
	"atoll.dev/atoll/internal/tunnel/websocket"
)

const (
	// headerTimeout is how long a request may take to say what it wants.
	headerTimeout = 10 * time.Second
	// requestIdle is how long balancers may keep a connection for another request.
	requestIdle = 2 * time.Minute
	// healthPath tells balancers that the hub is there.
	healthPath = "/healthz"
)

// websockets speaks HTTP/1.1 with whoever does not speak HTTP/2: balancers that terminate
// TLS, and through them agents, whose WebSockets carry what they would have said directly.
// It is safe for concurrent use.
type websockets struct {
	server *http.Server
	came   *tunnel.Listener // connections of HTTP
	// carried by WebSockets: connections like any other, for those who serve agents.
	carried *tunnel.Listener
	metrics *metrics
	log     *slog.Logger
}

func (g *Gateway) websockets() *websockets {
	w := &websockets{came: tunnel.NewListener("https"), carried: tunnel.NewListener("websocket"), metrics: g.metrics, log: g.log}
	mux := http.NewServeMux()
	mux.HandleFunc(websocket.Path, w.upgrade)
	mux.HandleFunc(healthPath, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	w.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, IdleTimeout: requestIdle, MaxHeaderBytes: fieldsMost,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	return w
}

// upgrade a request, and hand on what its WebSocket carries.
func (w *websockets) upgrade(rw http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Upgrade(rw, r)
	if err != nil {
		w.log.Debug("refused a WebSocket", "err", err)
		return
	}
	w.metrics.websockets.Add(1)
	w.carried.Take(&guest{carried: true, line: &line{Conn: conn, closed: sync.OnceFunc(func() { w.metrics.websockets.Add(-1) })}})
}

// serve what the doorman hands over, and the listener of balancers that speak plainly
// where there is one, until stop; agents' connections go to others.
func (w *websockets) serve(g *Gateway, others *grpc.Server) (running *sync.WaitGroup) {
	running = &sync.WaitGroup{}
	listeners := []net.Listener{w.came}
	if g.o.Plain != nil {
		listeners = append(listeners, g.guests(g.o.Plain))
	}
	for _, l := range listeners {
		running.Go(func() {
			if err := w.server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				w.log.Error("agents behind load balancers are not served any more until the hub is started again", "address", l.Addr(), "err", err)
			}
		})
	}
	running.Go(func() {
		if err := others.Serve(w.carried); err != nil && !errors.Is(err, grpc.ErrServerStopped) && g.running.Err() == nil {
			w.log.Error("agents that come by WebSocket are not served any more until the hub is started again", "err", err)
		}
	})
	return running
}

// stop serving HTTP. What WebSockets carry is ended by those who serve it.
func (w *websockets) stop() {
	_ = w.server.Close()  // what fails is a listener that is closed already
	_ = w.carried.Close() // it gives no error
}
