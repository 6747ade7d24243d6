# A gRPC client in Ruby: all it knows of the cluster are the stubs that protoc made from proto/.
#
# Arguments: address, folder with ca.crt, admin.crt and admin.key, namespace. Each line that it prints is a JSON
# list: what it did, and what it saw.

require "json"
require "grpc"
require "google/protobuf/well_known_types"
require "google/rpc/status_pb"
require "podyard/core/v1/service_services_pb"

Meta = K8s::Io::Apimachinery::Pkg::Apis::Meta::V1
Kinds = K8s::Io::Api::Core::V1
Services = Podyard::Core::V1
Requests = Podyard::Meta::V1

$stdout.sync = true

def say(what, value)
  puts JSON.generate([what, value])
end

# What it asks of the cluster.
class Client
  def initialize(address, folder, namespace)
    read = ->(name) { File.read(File.join(folder, name)) }
    @credentials = GRPC::Core::ChannelCredentials.new(read["ca.crt"], read["admin.key"], read["admin.crt"])
    @address = address
    @namespace = namespace
  end

  def service(type)
    type::Stub.new(@address, @credentials, timeout: 120)
  end

  def maps
    @maps ||= service(Services::ConfigMapService)
  end

  def pods
    @pods ||= service(Services::PodService)
  end

  def meta(name)
    Meta::ObjectMeta.new(name: name, namespace: @namespace, labels: { "app" => name })
  end

  def named(type, name)
    type.new(namespace: @namespace, name: name)
  end

  def listed(name, **options)
    Requests::ListRequest.new(
      namespace: @namespace, options: Meta::ListOptions.new(labelSelector: "app=#{name}", **options)
    )
  end

  def nodes
    nodes = service(Services::NodeService).list(Requests::ListRequest.new)
    ready = nodes.items.map do |node|
      [node.metadata.name, node.status.conditions.find { |condition| condition.type == "Ready" }.status]
    end
    say("nodes", ready.sort)
  end

  # A ConfigMap's life, and the same as a watch from before it tells it.
  def life
    before = maps.list(listed("ruby")).metadata.resourceVersion
    object = Kinds::ConfigMap.new(metadata: meta("ruby"), data: { "a" => "1" }, binaryData: { "b" => "\xff".b })
    made = maps.create(Services::ConfigMapCreateRequest.new(namespace: @namespace, object: object))
    say("created", [made.metadata.name, made.metadata.uid.length, made.data.to_h, made.binaryData["b"].bytes])
    say("got", maps.get(named(Requests::GetRequest, "ruby")) == made)
    changed = made.dup
    changed.data["a"] = "2"
    updated = maps.update(Services::ConfigMapUpdateRequest.new(namespace: @namespace, object: changed))
    say("updated", updated.data.to_h)
    patched = maps.patch(
      Requests::PatchRequest.new(
        namespace: @namespace,
        name: "ruby",
        type: "application/merge-patch+json",
        body: JSON.generate({ data: { a: nil, c: "3" } })
      )
    )
    say("patched", patched.data.to_h)
    gone = maps.delete(named(Requests::DeleteRequest, "ruby"))
    say("deleted", [gone.status.status, gone.status.details.uid == made.metadata.uid])
    say("events", told(maps.watch(listed("ruby", resourceVersion: before))))
  end

  def told(batches)
    events = []
    batches.each do |batch|
      batch.events.each { |event| events << [event.type, event.object.data.to_h] }
      break if events.any? { |type, _| type == "DELETED" }
    end
    events
  end

  def refusals
    object = Kinds::ConfigMap.new(metadata: meta("Not A Name"))
    refused("invalid") do
      maps.create(Services::ConfigMapCreateRequest.new(namespace: @namespace, object: object))
    end
    refused("absent") { maps.get(named(Requests::GetRequest, "absent")) }
  end

  def refused(what)
    yield
    say(what, "it was not refused")
  rescue GRPC::BadStatus => error
    details = Google::Rpc::Status.decode(error.metadata["grpc-status-details-bin"]).details
    status = details.first.unpack(Meta::Status)
    causes = status.details.causes.map(&:field)
    say(what, [error.code, error.details == status.message, status.code, status.reason, status.message, causes])
  end

  # A pod's life, with a command in it.
  def pod
    command = ["sh", "-c", "echo begun; sleep 3600"]
    container = Kinds::Container.new(name: "main", image: "busybox", command: command)
    spec = Kinds::PodSpec.new(containers: [container], terminationGracePeriodSeconds: 0)
    object = Kinds::Pod.new(metadata: meta("ruby"), spec: spec)
    made = pods.create(Services::PodCreateRequest.new(namespace: @namespace, object: object))
    say("pod", made.status.phase)
    everywhere = pods.list(Requests::ListRequest.new).items
    say("pods", everywhere.map { |pod| [pod.metadata.namespace, pod.metadata.name, pod.spec.containers.size] })
    say("ready", wait_until_ready(made.metadata.resourceVersion))
    say("command", run("read line; echo got $line; echo err >&2; exit 3", "hello\n"))
    logs = Services::PodLogsRequest.new(namespace: @namespace, name: "ruby")
    say("log", pods.logs(logs).map(&:data).join)
    options = Meta::DeleteOptions.new(gracePeriodSeconds: 0)
    request = Requests::DeleteRequest.new(namespace: @namespace, name: "ruby", options: options)
    say("pod deleted", Kinds::Pod.decode(pods.delete(request).object.raw).metadata.uid == made.metadata.uid)
  end

  def wait_until_ready(version)
    pods.watch(listed("ruby", resourceVersion: version)).each do |batch|
      batch.events.each do |event|
        conditions = event.object.status.conditions
        return event.type if conditions.any? { |entry| entry.type == "Ready" && entry.status == "True" }
      end
    end
  end

  def run(script, input)
    options = Kinds::PodExecOptions.new(
      container: "main", stdin: true, stdout: true, stderr: true, command: ["sh", "-c", script]
    )
    start = Services::PodExecStart.new(namespace: @namespace, name: "ruby", options: options)
    requests = [Services::PodExecRequest.new(start: start), Services::PodExecRequest.new(stdin: input)]
    said = { "stdout" => "", "stderr" => "" }
    ended = nil
    pods.exec(requests.each).each do |output|
      output.output == :status ? ended = output.status : said[output.output.to_s] << output[output.output.to_s]
    end
    [said["stdout"], said["stderr"], ended.reason, ended.details.causes.map { |cause| [cause.reason, cause.message] }]
  end
end

client = Client.new(*ARGV)
client.nodes
client.life
client.refusals
client.pod
say("done", true)
