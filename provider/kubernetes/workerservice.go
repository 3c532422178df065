package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fumehood/fumehood"
)

// WorkerPort is the name of the Service's port at which workers listen. It is needed if the Service has several.
const WorkerPort = "fumehood"

const opFind = "find workers"

// WorkerService finds the workers of package workers that are behind a Service: Pods that run `fumehood serve` with TLS. Its
// methods may be called by multiple goroutines concurrently.
//
//	service, err := kubernetes.NewWorkerService(kubernetes.Options{Namespace: "evals"}, "fumehood")
//	...
//	p, err := workers.New(workers.Options{
//		Discover: &workers.Discovery{Name: "kubernetes:fumehood", List: service.List},
//		TLS:      &tls.Config{ServerName: service.ServerName()}, CAFile: "ca.pem", Token: token,
//	})
type WorkerService struct {
	api  *api
	name string
}

// NewWorkerService reads the configuration, of which Kubeconfig, Context and Namespace count. It does not contact the cluster.
func NewWorkerService(opts Options, name string) (*WorkerService, error) {
	if bad := validation.IsDNS1035Label(name); len(bad) > 0 {
		return nil, &fumehood.Error{Op: opFind, Class: fumehood.ErrConfig, Err: fmt.Errorf("%q is not the name of a Service: %s", name, bad[0])}
	}
	a, err := connect(opts)
	if typed, ok := errors.AsType[*fumehood.Error](err); ok {
		typed.Op = opFind
	}
	if err != nil {
		return nil, err
	}
	return &WorkerService{a, name}, nil
}

// ServerName returns the name that the certificates of the workers must have: SERVICE.NAMESPACE.svc.
func (s *WorkerService) ServerName() string { return s.name + "." + s.api.namespace + ".svc" }

// List returns https://ADDRESS:PORT of each endpoint of the Service that is ready, by one request. Of a Service with both kinds
// of addresses it takes IPv4. None is no error. WorkerRights are the rights that it needs.
func (s *WorkerService) List(ctx context.Context) ([]string, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	raw, err := s.api.rest.Get().AbsPath("/apis/discovery.k8s.io/v1/namespaces", s.api.namespace, "endpointslices").
		Param("labelSelector", discoveryv1.LabelServiceName+"="+s.name).DoRaw(ctx)
	if err != nil {
		var status metav1.Status // the library does not read the answers of this part of the API
		if json.Unmarshal(raw, &status) == nil && status.Message != "" {
			err = &apierrors.StatusError{ErrStatus: status}
		}
		err = explain(err)
		if typed, ok := errors.AsType[*fumehood.Error](err); ok && apierrors.IsForbidden(err) {
			typed.Hint = "give this account the Role that `fumehood doctor --workers kubernetes:" + s.name + " --print-rbac` prints"
		}
		return nil, err
	}
	var found discoveryv1.EndpointSliceList
	if err := json.Unmarshal(raw, &found); err != nil {
		return nil, fmt.Errorf("the answer about the Service %s: %w", s.name, err)
	}
	urls := map[discoveryv1.AddressType][]string{}
	for i := range found.Items {
		slice := &found.Items[i]
		ready, err := readyEndpoints(slice)
		if err != nil {
			return nil, &fumehood.Error{Class: fumehood.ErrConfig, Err: fmt.Errorf("the Service %s: %w", s.name, err)}
		}
		urls[slice.AddressType] = append(urls[slice.AddressType], ready...)
	}
	if all := urls[discoveryv1.AddressTypeIPv4]; len(all) > 0 {
		return all, nil
	}
	return urls[discoveryv1.AddressTypeIPv6], nil
}

// readyEndpoints returns the addresses of a slice's endpoints that are ready.
func readyEndpoints(slice *discoveryv1.EndpointSlice) (urls []string, err error) {
	port := int32(0)
	for _, p := range slice.Ports {
		if p.Port != nil && (len(slice.Ports) == 1 || p.Name != nil && *p.Name == WorkerPort) {
			port = *p.Port
		}
	}
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 { // unknown means ready
			continue
		}
		if port == 0 {
			return nil, errors.New("it has several ports, or none; the workers' needs the name " + WorkerPort)
		}
		urls = append(urls, "https://"+net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(port))))
	}
	return urls, nil
}
