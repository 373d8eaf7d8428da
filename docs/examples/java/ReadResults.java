import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.avro.AvroRuntimeException;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.message.BinaryMessageDecoder;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints what is in ranking.results as JSON, one object a line.
 *
 * <p>java -cp JARS ReadResults.java RankingResult.avsc
 *
 * <p>Reads every partition from its beginning to the end that it had at the start. The schema is what `intertidal topics
 * schema RankingResult` prints; the broker stands in KAFKA_BOOTSTRAP. A record that cannot be read is named on stderr,
 * and the exit code is then 1.
 */
public final class ReadResults {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int CONFLUENT_MAGIC = 0;

  private final BinaryMessageDecoder<GenericRecord> decoder;

  ReadResults(Schema schema) {
    // Schemas of other writers can be added by addSchema: the frame names the writer's, the reader resolves it.
    this.decoder = new BinaryMessageDecoder<>(GenericData.get(), schema);
  }

  ObjectNode read(byte[] value) throws java.io.IOException {
    if (value.length > 0 && value[0] == CONFLUENT_MAGIC) {
      throw new AvroRuntimeException("in the Confluent wire format: its schema id is known to the registry alone");
    }
    return json(decoder.decode(value));
  }

  private static ObjectNode json(GenericRecord record) {
    ObjectNode object = JsonNodeFactory.instance.objectNode();
    for (Schema.Field field : record.getSchema().getFields()) {
      object.putPOJO(field.name(), plain(field.name(), record.get(field.pos())));
    }
    return object;
  }

  private static Object plain(String name, Object value) {
    if (value instanceof ByteBuffer packed) {
      return unpacked(name, packed);
    }
    if (value instanceof GenericRecord inner) {
      return json(inner);
    }
    if (value instanceof List<?> items) {
      ArrayNode array = JsonNodeFactory.instance.arrayNode();
      items.forEach(item -> array.addPOJO(plain(name, item)));
      return array;
    }
    // Avro's own kind of text.
    return value instanceof CharSequence ? value.toString() : value;
  }

  /** Packed little-endian arrays: ids are int64, everything else is float32. */
  private static Object unpacked(String name, ByteBuffer packed) {
    ByteBuffer bytes = packed.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    if (name.endsWith("_ids")) {
      long[] ids = new long[bytes.remaining() / Long.BYTES];
      bytes.asLongBuffer().get(ids);
      return ids;
    }
    float[] numbers = new float[bytes.remaining() / Float.BYTES];
    bytes.asFloatBuffer().get(numbers);
    return numbers;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 1) {
      System.err.println("ReadResults RankingResult.avsc");
      System.exit(2);
    }
    ReadResults reader = new ReadResults(new Schema.Parser().parse(Path.of(args[0]).toFile()));
    String topic = System.getenv().getOrDefault("INTERTIDAL_NAMESPACE", "") + "ranking.results";
    int numUnreadable = 0;
    try (Consumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(
            // No group: nothing is committed, and no one else's partitions move.
            Map.of("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP"), "enable.auto.commit", "false"),
            new ByteArrayDeserializer(),
            new ByteArrayDeserializer())) {
      List<TopicPartition> partitions =
          consumer.partitionsFor(topic).stream().map(p -> new TopicPartition(topic, p.partition())).toList();
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      while (partitions.stream().anyMatch(p -> consumer.position(p) < ends.get(p))) {
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
          try {
            System.out.println(JSON.writeValueAsString(reader.read(record.value())));
          } catch (java.io.IOException | AvroRuntimeException error) {
            numUnreadable++;
            System.err.printf("%d/%d: %s%n", record.partition(), record.offset(), error.getMessage());
          }
        }
      }
    }
    System.exit(numUnreadable == 0 ? 0 : 1);
  }
}
