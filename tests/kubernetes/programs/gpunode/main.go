// Programs of a node with GPUs: `gpunode plugin RESOURCE ID...` is a device plugin, `gpunode sleep` and
// `gpunode wait FILE` are what runs in the containers.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const poll = 100 * time.Millisecond

type plugin struct {
	api.UnimplementedDevicePluginServer
	ids []string
}

func (p plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p plugin) ListAndWatch(_ *api.Empty, stream grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	devices := make([]*api.Device, len(p.ids))
	for i, id := range p.ids {
		devices[i] = &api.Device{ID: id, Health: api.Healthy}
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	response := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		ids := strings.Join(container.DevicesIds, ",")
		response.ContainerResponses = append(response.ContainerResponses,
			&api.ContainerAllocateResponse{Envs: map[string]string{"NVIDIA_VISIBLE_DEVICES": ids}})
	}
	return response, nil
}

// A kubelet removes all sockets of the directory when it starts: serve and register again then.
func serve(resource string, ids []string) error {
	name := strings.ReplaceAll(resource, "/", "_") + ".sock"
	for {
		for !exists(api.KubeletSocket) {
			time.Sleep(poll)
		}
		server := grpc.NewServer()
		api.RegisterDevicePluginServer(server, plugin{ids: ids})
		path := filepath.Join(api.DevicePluginPath, name)
		os.Remove(path)
		listener, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		go server.Serve(listener)
		if err := register(resource, name); err != nil {
			fmt.Fprintln(os.Stderr, resource, err)
			os.Remove(path)
		}
		for exists(path) {
			time.Sleep(poll)
		}
		server.Stop()
		time.Sleep(poll)
	}
}

func register(resource, endpoint string) error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: endpoint, ResourceName: resource}
	_, err = api.NewRegistrationClient(connection).Register(ctx, request)
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func main() {
	switch {
	case len(os.Args) > 3 && os.Args[1] == "plugin":
		fmt.Fprintln(os.Stderr, serve(os.Args[2], os.Args[3:]))
		os.Exit(1)
	case len(os.Args) == 3 && os.Args[1] == "wait":
		for !exists(os.Args[2]) {
			time.Sleep(poll)
		}
	case len(os.Args) == 2 && os.Args[1] == "sleep":
		for {
			time.Sleep(time.Hour)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: gpunode plugin RESOURCE ID... | sleep | wait FILE")
		os.Exit(2)
	}
}
