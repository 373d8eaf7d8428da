import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.ExecutionException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.generic.GenericRecordBuilder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Reports the idle capacity of one host to fleet.capacity.
 *
 * <p>java -cp JARS CapacityReporter.java CapacityEvent.avsc CELL HOST ACCELERATOR
 *
 * <p>Reads lines "KIND UNITS" (offer 4, heartbeat 4, reclaim 0) and sends each as a full snapshot of the host. The
 * schema is what `intertidal topics schema CapacityEvent` prints; the broker stands in KAFKA_BOOTSTRAP.
 */
public final class CapacityReporter implements AutoCloseable {
  private final Producer<String, byte[]> producer;
  private final String topic;
  private final Schema schema;
  private final BinaryMessageEncoder<GenericRecord> encoder;
  private final String cell;
  private final String host;
  // Numbers begin anew with each start, and the later start counts: a restarted agent never repeats a number.
  private final long epochMs = System.currentTimeMillis();
  private long seq = 0;

  CapacityReporter(String bootstrap, String namespace, Schema schema, String cell, String host) {
    this.topic = namespace + "fleet.capacity";
    this.schema = schema;
    this.cell = cell;
    this.host = host;
    // Single-object encoding: C3 01, the schema's fingerprint, the body.
    this.encoder = new BinaryMessageEncoder<>(GenericData.get(), schema);
    // Idempotence keeps retries in order; out of order, a late record would be dropped as an old one. Java's default
    // partitioner hashes keys with murmur2, which is what the contract asks for.
    this.producer =
        new KafkaProducer<>(
            Map.of("bootstrap.servers", bootstrap, "acks", "all", "enable.idempotence", "true", "linger.ms", "0"),
            new StringSerializer(),
            new ByteArraySerializer());
  }

  /** Sends what the host offers now, all of it: who misses a record is right again after the next. */
  RecordMetadata report(String kind, List<GenericRecord> offers)
      throws java.io.IOException, ExecutionException, InterruptedException {
    GenericRecord event =
        new GenericRecordBuilder(schema)
            .set("cell", cell)
            .set("host", host)
            .set("epoch_ms", epochMs)
            .set("seq", ++seq)
            .set("event_time_ms", System.currentTimeMillis())
            .set("kind", kind)
            .set("offers", offers)
            .build();
    ByteBuffer framed = encoder.encode(event);
    byte[] value = new byte[framed.remaining()];
    framed.get(value);
    // The key is the cell. Waiting for the acknowledgement: a record is sent when the broker has it.
    return producer.send(new ProducerRecord<>(topic, cell, value)).get();
  }

  GenericRecord offer(String accelerator, double units) {
    Schema offers = schema.getField("offers").schema();
    return new GenericRecordBuilder(offers.getElementType())
        .set("accelerator", accelerator)
        .set("units", units)
        .set("cpu_cores", 8.0 * units)
        .set("memory_bytes", (long) (units * (64L << 30)))
        .set("idle_cause", "off_peak")
        .set("provider", "own")
        .build();
  }

  @Override
  public void close() {
    producer.close();
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 4) {
      System.err.println("CapacityReporter CapacityEvent.avsc CELL HOST ACCELERATOR < lines of KIND UNITS");
      System.exit(2);
    }
    Schema schema = new Schema.Parser().parse(Path.of(args[0]).toFile());
    String namespace = System.getenv().getOrDefault("INTERTIDAL_NAMESPACE", "");
    try (CapacityReporter reporter =
            new CapacityReporter(System.getenv("KAFKA_BOOTSTRAP"), namespace, schema, args[1], args[2]);
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8)) {
      while (lines.hasNext()) {
        String kind = lines.next();
        double units = Double.parseDouble(lines.next());
        List<GenericRecord> offers = new ArrayList<>();
        if (units > 0) {
          offers.add(reporter.offer(args[3], units));
        }
        RecordMetadata sent = reporter.report(kind, offers);
        System.out.println(kind + " " + sent.partition() + " " + sent.offset());
      }
    }
  }
}
