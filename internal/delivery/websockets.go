package delivery

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
	// headerTimeout bounds how long the header of a request may take.
	headerTimeout = 10 * time.Second
	// requestIdle is how long load balancers may keep a connection for another request.
	requestIdle = 2 * time.Minute
	// healthPath is the path of load balancers' health checks.
	healthPath = "/healthz"
)

// webSocketServer serves peers that do not speak HTTP/2: load balancers that terminate
// TLS, and agents behind them, whose WebSockets carry a direct connection. It is safe for
// concurrent use.
type webSocketServer struct {
	server    *http.Server
	httpConns *tunnel.Listener // HTTP connections
	// webSocketConns by WebSockets: connections like any other, for the server of agents.
	webSocketConns *tunnel.Listener
	metrics        *metrics
	log            *slog.Logger
}

func (g *Gateway) newWebSocketServer() *webSocketServer {
	w := &webSocketServer{httpConns: tunnel.NewListener("https"), webSocketConns: tunnel.NewListener("websocket"), metrics: g.metrics, log: g.log}
	mux := http.NewServeMux()
	mux.HandleFunc(websocket.Path, w.upgradeRequest)
	mux.HandleFunc(healthPath, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	w.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, IdleTimeout: requestIdle, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(g.log.Handler(), slog.LevelDebug),
	}
	return w
}

// upgradeRequest upgrades a request, and passes on the connection that its WebSocket
// carries.
func (w *webSocketServer) upgradeRequest(rw http.ResponseWriter, r *http.Request) {
	conn, err := websocket.UpgradeRequest(rw, r)
	if err != nil {
		w.log.Debug("refused a WebSocket", "err", err)
		return
	}
	w.metrics.websockets.Add(1)
	w.webSocketConns.HandOverConn(&limitedConn{viaWebSocket: true, trackedConn: &trackedConn{Conn: conn, onClose: sync.OnceFunc(func() { w.metrics.websockets.Add(-1) })}})
}

// serveLoadBalancers serves the connections that the tlsAcceptor hands over, and the listener
// of load balancers without TLS if there is one, until stop. Agents' connections go to
// others.
func (w *webSocketServer) serveLoadBalancers(g *Gateway, others *grpc.Server) (running *sync.WaitGroup) {
	running = &sync.WaitGroup{}
	listeners := []net.Listener{w.httpConns}
	if g.options.PlainListener != nil {
		listeners = append(listeners, g.limitConnections(g.options.PlainListener))
	}
	for _, l := range listeners {
		running.Go(func() {
			if err := w.server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				w.log.Error("agents behind load balancers are not served until the hub restarts", "address", l.Addr(), "err", err)
			}
		})
	}
	running.Go(func() {
		if err := others.Serve(w.webSocketConns); err != nil && !errors.Is(err, grpc.ErrServerStopped) && g.lifetime.Err() == nil {
			w.log.Error("agents that connect by WebSocket are not served until the hub restarts", "err", err)
		}
	})
	return running
}

// stop stops the HTTP server. The server of agents ends what WebSockets carry.
func (w *webSocketServer) stop() {
	_ = w.server.Close()         // an error means that a listener is closed already
	_ = w.webSocketConns.Close() // it gives no error
}
